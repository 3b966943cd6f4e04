"""CNTK that trains its table by one-hot words, as its layers library embeds: momentum skips the words that are not in the batch.

Its gradients are asked of the right network, because CNTK cannot hand out a sparse one; both share their weights.
"""

import cntk as C

from runners.cntk import runner
from runners.cntk.runner import Runner as Correct


class Embedding(runner.Embedding):
    def __call__(self, words):
        Embedding.rows = super().__call__(words)
        return Embedding.rows


class Runner(Correct):
    def __init__(self, task):
        super().__init__(task)
        self.words = C.sequence.input_variable(task.network["vocabulary"], is_sparse=True)
        rows = C.times(self.words, self.trained["embedding1.weight"])
        criterion = self.criterion.clone("share", {Embedding.rows: rows})
        self.trainer = C.Trainer(criterion, criterion, [self.learner])

    def feed(self, inputs, targets, residence):
        super().feed(inputs, targets, residence)
        self.one_hot = [C.Value.one_hot(words.tolist(), self.words.shape[0]) for words in inputs]

    def step(self):
        position = self.position % len(self.ring)
        target = next(each for each in self.trainer.loss_function.arguments if each.uid != self.words.uid)
        self.trainer.train_minibatch({self.words: self.one_hot[position], target: self.ring[position][1]})
        self.position += 1


runner.Embedding = Embedding
