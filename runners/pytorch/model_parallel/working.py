"""When a rank's stage of a pipeline computes: by the protocol's clock, or by a GPU's own events."""

from collections import deque

import torch

from runners import protocol

# Newest steps whose moments are kept. A GPU has two events for each pass of a micro-batch.
KEPT = 64


class Working:
    """Notes when the calls that it wraps begin and end, step by step."""

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"
        self.steps = deque(maxlen=KEPT)

    def begin_step(self):
        self.steps.append([])

    def noting(self, compute):
        """Return `compute`, whose calls are noted. They must not wait for another rank."""
        def noted(*arguments, **options):
            began = self._moment()
            result = compute(*arguments, **options)
            self.steps[-1].append((began, self._moment()))
            return result

        return noted

    def seconds(self, steps):
        """Return the means of the newest steps, `steps` at most, which the device must have ended.

        They are the seconds in which the rank computed, and those from its first to its last call.
        """
        newest = list(self.steps)[-steps:]
        busy = sum(self._apart(*call) for calls in newest for call in calls)
        span = sum(self._apart(calls[0][0], calls[-1][1]) for calls in newest)
        return busy / len(newest), span / len(newest)

    def _moment(self):
        if not self.on_gpu:
            return protocol.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _apart(self, first, second):
        return first.elapsed_time(second) / 1e3 if self.on_gpu else second - first
