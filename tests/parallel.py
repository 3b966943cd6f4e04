"""How the tests train the reference on several devices, as a framework's file would say it."""

from harness.environments.recipes import Parallel

REASONS = {"cuda": "NumPy computes on the CPU"}
PARALLEL = Parallel(kind="ranks", launch=["-m", "tests.faults.processes.launch", "{devices}", "-m"],
                    rank="RANK", strategies={"cpu": ["sums"]}, reasons=REASONS)
CONTROLLER = Parallel(kind="controller", strategies={"cpu": ["shards"]}, reasons=REASONS)


def parallel_of(module: str) -> Parallel | None:
    """How a runner of tests.faults trains on several devices, by its file, if it does."""
    file = module.removeprefix("tests.faults.").partition(":")[0]
    return {"processes.ranks": PARALLEL, "processes.controllers": CONTROLLER}.get(file)
