"""1-bit SGD with error feedback (F. Seide et al., Interspeech 2014), as CNTK's learner did it.

Each value travels as its sign, eight in a byte. The receiver also gets, of each block of 1024
values of one parameter (Seide: a column), the mean of those at or above zero and of those below,
and puts these in place of the values. What that takes from a value is added to the next step's
gradient. There are two rounds: rank r averages everybody's r-th part of the buffer, then sends the
mean to all, packed anew with an error of its own. In each round a rank sends n - 1 messages of
136/4096 S / n bytes at once and receives as many.

Bound: the two means are the least-squares fit of a block by two values, so a round takes away at
most the block's own norm. The sum of all steps' answers differs from the sum of the exact means by
the errors kept now, and by nothing else.
"""

import torch

from runners.pytorch.aggregation import Messages, exchange

BLOCK = 1024
# Two float32, which follow the 128 bytes of a block's signs.
MEANS_BYTES = 8


class OneBit(Messages):
    quantum = BLOCK

    def __init__(self, parameters, task):
        super().__init__(parameters, task)
        self.blocks = self.flat.view(self.ranks, -1, BLOCK)  # (n, blocks, BLOCK)
        # The errors of this rank's gradients, and of its part of the mean.
        self.errors = torch.zeros_like(self.blocks)
        self.mean_errors = torch.zeros_like(self.blocks[0])
        used = torch.zeros_like(self.flat)
        for view in self.views:
            used.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(1)
        # Elements between a parameter's end and the next block.
        self.unused = used.view_as(self.blocks) == 0
        self.unused_counts = self.unused.sum(-1)
        self.powers = 2 ** torch.arange(8, dtype=torch.uint8, device=self.flat.device)

    def average(self):
        packed = self.pack(self.blocks, self.errors, slice(None))  # (n, blocks, bytes)
        arrived = self._swap(list(packed))
        mean = self.unpack(arrived).mean(0)  # (blocks, BLOCK)
        packed = self.pack(mean, self.mean_errors, self.rank)
        self.blocks.copy_(self.unpack(self._swap([packed] * self.ranks)))

    def reset(self):
        self.errors.zero_()
        self.mean_errors.zero_()

    def pack(self, values, errors, parts):
        """Return `values` plus the last step's `errors` as bytes; leave the new errors there."""
        values = (values + errors).masked_fill_(self.unused[parts], 0)
        signs = values >= 0
        ups = signs.sum(-1)
        downs = BLOCK - ups
        ups -= self.unused_counts[parts]
        means = torch.stack([values.clamp(max=0).sum(-1) / downs.clamp(min=1),
                             values.clamp(min=0).sum(-1) / ups.clamp(min=1)], -1)
        octets = (signs.unflatten(-1, (-1, 8)) * self.powers).sum(-1, dtype=torch.uint8)
        packed = torch.cat([octets, means.view(torch.uint8)], -1)
        torch.sub(values, self.unpack(packed), out=errors)
        return packed

    def unpack(self, packed):
        octets = packed[..., :-MEANS_BYTES]
        means = packed[..., -MEANS_BYTES:].contiguous().view(torch.float32)
        signs = (octets.unsqueeze(-1) & self.powers).flatten(-2) != 0
        return torch.where(signs, means[..., 1:], means[..., :1])

    def _swap(self, outgoing):
        """Send `outgoing[r]` to each rank r; return what all ranks sent to this one, (n, ...)."""
        arrived = torch.empty(self.ranks, *outgoing[0].shape, dtype=torch.uint8,
                              device=self.flat.device)
        arrived[self.rank] = outgoing[self.rank]
        others = [rank for rank in range(self.ranks) if rank != self.rank]
        exchange([(outgoing[other], other) for other in others],
                 [(arrived[other], other) for other in others])
        return arrived
