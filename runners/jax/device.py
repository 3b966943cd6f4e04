"""JAX's one device for a task, for the libraries on top of JAX too."""

import jax

from runners import protocol

# JAX's "gpu" is CUDA or ROCm, whichever plugin is there.
PLATFORMS = {"cpu": "cpu", "cuda": "gpu"}


def prepare(task):
    """Fix threads and the precision of products; return JAX's device."""
    if task.device == "cpu":
        # As in `runners.jax`: XLA's CPU client has no other setting for its threads.
        protocol.fix_threads(task.threads, ["NPROC"], "XLA's CPU client")
    jax.config.update("jax_default_matmul_precision",
                      "highest" if task.precision == "fp32" else "default")
    try:
        return jax.local_devices(backend=PLATFORMS[task.device])[0]
    except RuntimeError as error:
        raise protocol.Unsupported(f"jax.devices('{task.device}'): {error}") from error
