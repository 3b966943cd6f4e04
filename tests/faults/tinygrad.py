"""tinygrad's runner with one fault each."""

from runners.tinygrad.runner import Runner


class StaleLoss(Runner):
    """The loss is realised after the update, so it is that of the updated parameters.

    `optimizer.step(); return loss` in a lazy framework: its documentation has it inside a TinyJit.
    """

    def _update(self, loss):
        self.optimizer.step()
        return loss
