"""The reference with pooling that rounds up, as Caffe pools unless told otherwise."""

import numpy as np

from runners.reference.runner import OPERATIONS
from runners.reference.runner import Runner as Reference

floor, floor_backward = OPERATIONS["max_pool"]


def ceil(a, w, x):
    more = [-(length + 2 * a["padding"] - a["kernel"]) % a["stride"] for length in x.shape[2:]]
    return floor(a, w, np.pad(x, ((0, 0), (0, 0), (0, more[0]), (0, more[1])), "constant", constant_values=-np.inf))


class Runner(Reference):
    operations = dict(OPERATIONS, max_pool=(ceil, floor_backward))
