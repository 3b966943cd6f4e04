"""CNTK with the LSTM's gates left in its own order."""

from runners import cntk_runner
from runners.cntk_runner import Runner as Correct

cntk_runner.EXCHANGE = [0, 1, 2, 3]
Runner = Correct
