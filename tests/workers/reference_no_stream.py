"""The reference without a stream for the machine's peak, as most old frameworks' runners are."""

from runners.protocol import Runner as BaseRunner
from runners.reference.runner import Runner as Reference


class Runner(Reference):
    stream = staticmethod(BaseRunner.stream)
