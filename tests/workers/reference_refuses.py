"""The reference as a framework that refuses this machine before its first answer."""

from runners.protocol import Unsupported
from runners.reference.runner import Runner as Reference


class Runner(Reference):
    @staticmethod
    def describe():
        raise Unsupported("this wheel needs AVX-512 [see the release notes]")
