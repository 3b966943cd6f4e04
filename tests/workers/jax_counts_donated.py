"""JAX that says, when its copies are asked for, how many arrays of the state its last step has overwritten."""

import jax

from runners.jax.runner import Runner as Correct
from runners.protocol import Different


class Runner(Correct):
    def step(self):
        self.before = jax.tree.leaves(self.state)
        super().step()

    def copies(self):
        raise Different(f"{sum(array.is_deleted() for array in self.before)} of {len(self.before)} arrays donated")
