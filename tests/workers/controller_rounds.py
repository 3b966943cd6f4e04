"""The reference as a controller whose device 1 holds every parameter one unit in the last place off."""

import numpy as np

from runners.reference.runner import Runner as Reference


class Runner(Reference):
    def copies(self):
        one, other = super().copies()
        return [one, {name: np.nextafter(value.astype(np.float32), np.float32(np.inf)) for name, value in other.items()}]
