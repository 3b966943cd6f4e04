"""As memory_of_one_in_training, but that the first step hangs where another worker is there, after what TensorFlow writes."""

from tests.workers.memory_of_one_in_training import Runner as Limited
from tests.workers.memory_words import fail_and_wait


class Runner(Limited):
    def step(self):
        try:
            super().step()
        except MemoryError:
            fail_and_wait()
