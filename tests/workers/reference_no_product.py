"""The reference without a product for the machine's peak, as most old frameworks' runners are."""

from runners.protocol import Runner as BaseRunner
from runners.reference.runner import Runner as Reference


class Runner(Reference):
    product = staticmethod(BaseRunner.product)
