"""Strategies that divide the network among JAX's devices: only shardings say so, XLA does the rest.

`tensor`: of a pair of dense layers the first has its outputs divided and the second its inputs; an
embedding with a tied head is divided by words, filled up with zeros to equal parts. `fsdp`: each
array lies in equal parts on the devices, is gathered where a layer needs it, and once more in the
backward pass; each device trains on its own part of the batch.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec

from runners.divisible import pairs, refuse_undivided
from runners.protocol import Unsupported

STRATEGIES = ("tensor", "fsdp")
WHOLE, SPLIT = PartitionSpec(), PartitionSpec("devices")
COLUMNS, ROWS = PartitionSpec(None, "devices"), PartitionSpec("devices", None)
GATHERED = "gathered"


class Division:
    """How one network lies on the devices of a mesh; `specs` is by layer and parameter."""

    def __init__(self, task, mesh, shapes):
        if task.precision == "fp16":
            raise Unsupported(f"strategy '{task.strategy}' trains here in fp32, tf32 and bf16")
        refuse_undivided(task)
        self.devices, self.mesh, self.strategy = task.devices, mesh, task.strategy
        self.layers = {layer["name"]: layer for layer in task.network["layers"]}
        # Layer -> the rows of a divided table in the network, without the zeros that fill it up.
        self.rows, self.packed, self.heads_in = {}, set(), 1
        if self.strategy == "fsdp":
            self.batch, self.specs = SPLIT, self._fully_sharded(shapes)
        else:
            self.batch, self.specs = WHOLE, self._by_pairs(task, shapes)

    def _by_pairs(self, task, shapes):
        specs = {name: dict.fromkeys(held, WHOLE) for name, held in shapes.items()}
        self.pairs = pairs(task.network, self.devices)
        if not self.pairs:
            raise Unsupported("strategy 'tensor': {} has no two dense layers that follow one "
                              "another".format(task.network["name"]))
        for first, second in self.pairs:
            specs[first] = {"weight": COLUMNS, "bias": SPLIT}
            specs[second] = {"weight": ROWS, "bias": WHOLE}
        self.tied = {layer["attributes"]["tied"]: name for name, layer in self.layers.items()
                     if layer["op"] == "tied_dense"}
        for table in self.tied:
            specs[table] = {"weight": ROWS}
            self.rows[table] = shapes[table]["weight"].shape[0]
        self.packed = {layer["inputs"][0] for layer in self.layers.values()
                       if layer["op"] == "attention"} & {first for first, _ in self.pairs}
        self.heads_in = self.devices if self.packed else 1
        return specs

    def _fully_sharded(self, shapes):
        return {name: {kind: self._in_equal_parts(array.shape) for kind, array in held.items()}
                for name, held in shapes.items()}

    def _in_equal_parts(self, shape):
        """Cut the longest axis that divides evenly; an array without such an axis stays whole."""
        able = [axis for axis, size in enumerate(shape) if size % self.devices == 0]
        if not able:
            return WHOLE
        axis = max(able, key=lambda axis: shape[axis])
        return PartitionSpec(*([None] * axis), "devices")

    def settings(self):
        if self.strategy == "fsdp":
            return ["gathered layer by layer, in both passes"]
        words = ["{}+{}".format(*pair) for pair in [*self.pairs, *self.tied.items()]]
        return ["divided products: " + ", ".join(words)]

    def gathered(self, parameters):
        """Mark parameters so that XLA gathers each one where a layer needs it."""
        if self.strategy == "tensor":
            return parameters
        whole = NamedSharding(self.mesh, WHOLE)
        return jax.tree.map(
            lambda array: checkpoint_name(lax.with_sharding_constraint(array, whole), GATHERED),
            parameters)

    def forgetting(self, function):
        """Let the backward pass gather parameters again, and keep all other values."""
        if self.strategy == "tensor":
            return function
        kept = jax.checkpoint_policies.save_any_names_but_these(GATHERED)
        return jax.checkpoint(function, policy=kept)

    def logits(self, logits, head):
        """Mask the logits of the rows of zeros that fill up a divided table."""
        classes = self.layers[head]["attributes"].get("units")
        if logits.shape[-1] == classes:
            return logits
        number = lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
        return jnp.where(number < classes, logits, -jnp.inf)

    def stored(self, layer, array):
        """Lay a parameter out as devices hold it: (q k v) x devices becomes devices x (q k v)."""
        if layer in self.packed:
            parts = array.reshape(*array.shape[:-1], 3, self.devices, -1)
            return np.ascontiguousarray(parts.swapaxes(-3, -2)).reshape(array.shape)
        if layer in self.rows:
            more = -len(array) % self.devices
            return np.pad(array, ((0, more), (0, 0)))
        return array

    def as_in_network(self, layer, array):
        """Undo `stored`."""
        if layer in self.packed:
            parts = array.reshape(*array.shape[:-1], self.devices, 3, -1)
            return np.ascontiguousarray(parts.swapaxes(-3, -2)).reshape(array.shape)
        return array[:self.rows[layer]] if layer in self.rows else array

    def own(self, number, parameters):
        """Return what device `number` holds of whole arrays, and the rest from all devices."""
        return jax.tree.map(
            lambda array: array.addressable_shards[number].data if array.is_fully_replicated
            else array, parameters)

    def held(self, parameters):
        """Count the numbers of each parameter on each device, without zeros that fill it up."""
        found = []
        for number in range(self.devices):
            counts = {}
            for layer, arrays in parameters.items():
                for kind, array in arrays.items():
                    shard = array.addressable_shards[number]
                    size = shard.data.size
                    if layer in self.rows:
                        first = shard.index[0].start or 0
                        rows = min(shard.data.shape[0], self.rows[layer] - first)
                        size = max(0, rows) * array.shape[1]
                    counts[f"{layer}.{kind}"] = int(size)
            found.append(counts)
        return found
