"""MXNet with the fused LSTM as Gluon makes it: its second bias is trained too."""

from runners.mxnet import runner
from runners.mxnet.runner import Runner as Correct

runner.one_bias_lstm = lambda lstm: lstm
Runner = Correct
