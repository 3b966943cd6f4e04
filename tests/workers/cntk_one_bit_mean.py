"""CNTK that answers with the mean of 40 gradients that its 1-bit learner sent, parameters and batch being the same."""

import numpy as np

from runners.cntk.runner import Keeper, to_canonical
from runners.cntk.runner import Runner as Correct

STEPS = 40


class Runner(Correct):
    def gradients(self):
        keeper = Keeper(list(self.trained.values()))
        trainer = self._trainer(keeper, "one_bit")
        total = {name: 0.0 for name in self.trained}
        for _ in range(STEPS):
            trainer.train_minibatch(self._arguments(0))
            for name, parameter in self.trained.items():
                total[name] = total[name] + to_canonical(keeper.sums[parameter] / np.float32(keeper.samples), self.ops[name])
        return {name: array / np.float32(STEPS) for name, array in total.items()}
