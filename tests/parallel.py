"""How the tests train the reference on several devices, as a framework's file would say it."""

from harness.environments.recipes import Parallel

REASONS = {"cuda": "NumPy computes on the CPU"}
PARALLEL = Parallel(kind="ranks", launch=["-m", "tests.workers.launch", "{devices}", "-m"], rank="RANK",
                    strategies={"cpu": ["sums"]}, reasons=REASONS)
CONTROLLER = Parallel(kind="controller", strategies={"cpu": ["shards"]}, reasons=REASONS)


def parallel_of(module: str) -> Parallel | None:
    """How a runner of tests.workers trains on several devices, by its name: not at all where that says nothing."""
    return {"ranks": PARALLEL, "controller": CONTROLLER}.get(module.rpartition(".")[2].partition("_")[0])
