"""CNTK with a table times one-hot words, as its layers library embeds: momentum skips the words that are not in the batch."""

import cntk as C

from runners import cntk_runner
from runners.cntk_runner import Runner as Correct


class Embedding(cntk_runner.Embedding):
    def __call__(self, words):
        table = self.parameters[0]
        return C.times(C.one_hot(words, table.shape[0], sparse_output=True), table)


cntk_runner.Embedding = Embedding
Runner = Correct
