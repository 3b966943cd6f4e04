"""The reference with a learning rate of its own, as three of DLBench's five tools ignored the configured one."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def __init__(self, task):
        super().__init__(task)
        self.network = dict(self.network, learning_rate=0.01)
