"""How the tests' own launcher starts ranks (tests/workers/launch.py), as a framework's file would say it."""

from harness.frameworks import Parallel

PARALLEL = Parallel(kind="ranks", launch=["-m", "tests.workers.launch", "{devices}", "-m"], rank="RANK",
                    strategies={"cpu": ["sums"]}, reasons={"cuda": "NumPy computes on the CPU"})
