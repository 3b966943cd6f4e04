"""When a rank's stage of a pipeline computes: by the protocol's clock, or by a GPU's own events."""

import torch

from runners import protocol


class Working:
    """Notes, between `begin` and `end`, when the calls that it wraps begin and end, step by step.

    Noting costs time, so no timed step is noted.
    """

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"
        self.steps = None

    def begin(self):
        self.steps = []

    def end(self):
        """Return means of the noted steps, which the device must have ended.

        They are the seconds in which the rank computed, and those from its first to its last call.
        """
        steps, self.steps = self.steps, None
        busy = sum(self._apart(*call) for calls in steps for call in calls)
        span = sum(self._apart(calls[0][0], calls[-1][1]) for calls in steps)
        return busy / len(steps), span / len(steps)

    def begin_step(self):
        if self.steps is not None:
            self.steps.append([])

    def noting(self, compute):
        """Return `compute`, whose calls are noted. They must not wait for another rank."""
        def noted(*arguments, **options):
            if self.steps is None:
                return compute(*arguments, **options)
            began = self._moment()
            result = compute(*arguments, **options)
            self.steps[-1].append((began, self._moment()))
            return result

        return noted

    def _moment(self):
        if not self.on_gpu:
            return protocol.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _apart(self, first, second):
        return first.elapsed_time(second) / 1e3 if self.on_gpu else second - first
