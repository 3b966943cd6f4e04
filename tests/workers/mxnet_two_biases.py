"""MXNet with the fused LSTM as Gluon makes it: its second bias is trained too."""

from runners import mxnet_runner
from runners.mxnet_runner import Runner as Correct

mxnet_runner.one_bias_lstm = lambda lstm: lstm
Runner = Correct
