"""MXNet's parameter servers as a kvstore that several trainers of a process may use in turn.

A process is one worker of the servers, which take a key's first value as its start and every later
one as a part of a sum. So each key is begun once, whichever trainer asks. Python 3.6 syntax.
"""

import mxnet as mx
from mxnet.kvstore import KVStoreBase

joined = {}


class Servers(KVStoreBase):
    """The store `strategy` of all nodes; every trainer updates its own weights."""

    def __init__(self, strategy):
        self.store = mx.kv.create(strategy)
        self.keys = {}

    def broadcast(self, key, value, out, priority=0):
        """Begin a key. All nodes have loaded the same weights, so `out` has its value already."""
        place = key, value.shape
        if place not in self.keys:
            self.keys[place] = len(self.keys)
            self.store.init(self.keys[place], value)

    def pushpull(self, key, value, out=None, priority=0):
        """Add up the devices' and nodes' values."""
        own = self.keys[key, value[0].shape]
        self.store.pushpull(own, value, out=out, priority=priority)

    @staticmethod
    def is_capable(capability):
        return False

    @property
    def type(self):
        return self.store.type

    @property
    def rank(self):
        return self.store.rank

    @property
    def num_workers(self):
        return self.store.num_workers

    def wait_for_all(self):
        """Return when all nodes have come here."""
        self.store._barrier()


def join(task):
    """Return the store of this process; a second call finds it made."""
    if task.strategy not in joined:
        joined[task.strategy] = Servers(task.strategy)
        size = joined[task.strategy].num_workers
        if size != task.ranks:
            raise RuntimeError(f"MXNet sees {size} of {task.ranks} nodes")
    return joined[task.strategy]
