"""MXNet whose device 1 gets its old parameters back after each step."""

from runners.mxnet.runner import Runner as Correct


class Runner(Correct):
    def step(self):
        copies = [parameter.list_data()[1] for parameter in self.trained.values()]
        before = [copy.copy() for copy in copies]
        super().step()
        for copy, old in zip(copies, before):  # noqa: B905
            copy[:] = old
