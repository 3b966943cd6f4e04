"""The reference with gradients 5e-4 off on every draw: a fault that looks like a turned ReLU on the first."""

from tests.workers.reference_kink import Runner as Once


class Runner(Once):
    off = 1000
