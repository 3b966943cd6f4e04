"""The reference, whose profiler needs more memory than there is."""

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def profile(self, run):
        raise MemoryError("a profile of 20 GiB")
