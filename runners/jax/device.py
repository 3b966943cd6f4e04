"""JAX's devices for a task, for the libraries on top of JAX too."""

import os

import jax
import numpy as np

from runners import protocol
from runners.jax.sharding import STRATEGIES
from runners.jax.tiers import DTYPES
from runners.protocol import Unsupported

# JAX's "gpu" is CUDA or ROCm, whichever plugin is there.
PLATFORMS = {"cpu": "cpu", "cuda": "gpu"}


def prepare(task):
    """Fix threads and the precision of products; return JAX's one device."""
    jax.config.update("jax_default_matmul_precision",
                      "highest" if task.precision == "fp32" else "default")
    return find_devices(task)[0]


def find_devices(task):
    """Return JAX's devices for `task`, or raise `Unsupported` with JAX's own words."""
    protocol.refuse_unknown(task, precisions=DTYPES, strategies=["all_reduce", *STRATEGIES])
    local = task.devices // task.ranks
    if task.device == "cpu":
        # A device that waits for the others holds a thread. Without a spare thread, one of 15,000
        # steps on two devices never ended.
        threads = task.threads if task.devices == 1 else (task.threads + 1) * local
        # JAX has no setting for the pool of XLA's CPU client: it has a thread for each core of the
        # process's affinity (jax issue 1539), or as many as NPROC says.
        protocol.fix_threads(threads, ["NPROC"], "XLA's CPU client")
    if task.ranks > 1:
        _join(task)
    try:
        devices = jax.local_devices(backend=PLATFORMS[task.device])
    except RuntimeError as error:
        raise Unsupported(f"jax.devices('{task.device}'): {error}") from error
    if len(devices) < local:
        raise Unsupported(f"{local} devices: jax.devices('{task.device}') has {len(devices)}")
    return devices[:local]


def to_host(arrays):
    """Copy a tree of arrays of one GPU to NumPy's, which cannot be written to.

    They lie in pinned memory, which JAX keeps for the next copy. Once it is there, AlexNet's 250 MB
    arrive in 6 ms on an H200; `jax.device_get`, which copies to new memory, takes 150 ms.
    """
    pinned = jax.tree.map(lambda array: array.sharding.with_memory_kind("pinned_host"), arrays)
    return jax.tree.map(np.asarray, jax.block_until_ready(jax.device_put(arrays, pinned)))


def _join(task):
    """Find the processes of the other nodes, once a process, before JAX knows its devices."""
    if not jax.distributed.is_initialized():
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        head = os.environ["DLBENCH_NODES"].split(",")[0]
        jax.distributed.initialize(f"{head}:{os.environ['DLBENCH_PORT']}", task.ranks, task.rank)
