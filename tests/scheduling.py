"""Which process of pytest-xdist runs which tests: a framework's in one, so that they share workers.

xdist's own groups (`--dist loadgroup`) are lost without a word under pytest 9.2, which no longer
lets a plugin rename a test. So this scheduler reads the group from the test's name.
"""

import re

from xdist.scheduler import LoadScopeScheduling

from harness.environments import recipes

# Where real frameworks are loaded, once a process and framework.
SHARED = ("tests/runners/", "tests/harness/proof/")
FRAMEWORK = re.compile("|".join(sorted({*recipes.names()} - {"reference"})))
# What takes longest begins first, so that no process works alone at the end.
LONGEST = ("pytorch", "tensorflow")
# Files of few tests that take half a minute or more. xdist itself begins with what has most tests.
LONG_FILES = (
    "tests/harness/cluster/test_slurm.py", "tests/harness/campaign/test_pipeline.py",
    "tests/harness/comparison/test_comparison.py", "tests/harness/comparison/test_exit_codes.py",
    "tests/harness/plan/test_scaling_suite.py", "tests/harness/comparison/test_wheels.py",
    "tests/scripts/test_one_python.py", "tests/harness/campaign/test_several_devices.py",
    "tests/harness/cluster/test_two_nodes.py", "tests/harness/studies/test_attention.py",
    "tests/harness/studies/test_layers.py", "tests/harness/studies/test_aggregation.py",
    "tests/harness/campaign/test_hostile.py", "tests/harness/campaign/test_repair.py",
    "tests/harness/comparison/test_track.py")


class FrameworkScheduling(LoadScopeScheduling):
    """Sends all tests of a framework, or of a file, to one process; the longest first."""

    def _split_scope(self, nodeid):
        return group_of(nodeid)

    def _assign_work_unit(self, node):
        self.workqueue.move_to_end(min(self.workqueue, key=place_of), last=False)
        super()._assign_work_unit(node)


def group_of(nodeid):
    """The framework that a test of the shared folders names first, else the test's file."""
    named = FRAMEWORK.search(nodeid) if nodeid.startswith(SHARED) else None
    return named[0] if named else nodeid.partition("::")[0]


def place_of(group):
    """The longest, then the other frameworks, then long files, then the others in their order."""
    order = (*LONGEST, "framework", *LONG_FILES, "file")
    return order.index(group if group in order else "file" if "/" in group else "framework")
