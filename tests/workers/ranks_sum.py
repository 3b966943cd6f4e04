"""Adds the ranks' gradients up instead of averaging them, as a loss that every rank divides by its own batch invites."""

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def averaged(self, gradients):
        return {name: self.task.ranks * gradient for name, gradient in super().averaged(gradients).items()}
