"""Under pytest-xdist, one process runs all tests of a framework, so that they share its worker."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import measured_slow, pytest_collection_modifyitems
from tests.scheduling import LONG_FILES, LONGEST, FrameworkScheduling, group_of, place_of

ROOT = Path(__file__).parents[1]
RUNNERS, PROOF = "tests/runners/", "tests/harness/proof/"


@pytest.mark.parametrize(("test", "group"), [
    (RUNNERS + "test_tiers.py::test_a_tier[pytorch-compiled-settings1]", "pytorch"),
    (RUNNERS + "test_controllers.py::test_a_fault[tensorflow:Sum-the sum]", "tensorflow"),
    (RUNNERS + "test_controllers.py::test_a_step_of_jax_gives_its_state_away", "jax"),
    (RUNNERS + "mxnet/test_runner.py::test_tuned_is_the_same[1]", "mxnet"),
    (PROOF + "test_equality.py::test_pytorch_on_two_ranks_is_the_same[tiny_fcn]", "pytorch"),
    (PROOF + "test_equality.py::test_equal_copies", PROOF + "test_equality.py"),
    ("tests/analysis/test_gap.py::test_a_gap[pytorch]", "tests/analysis/test_gap.py"),
])
def test_a_test_belongs_to_its_framework_or_to_its_file(test, group):
    assert group_of(test) == group


class Process:
    """What the scheduler sees of a process of pytest-xdist."""

    shutting_down = False

    def __init__(self, number):
        self.given = []
        self.gateway = SimpleNamespace(id=number)

    def send_runtest_some(self, indexes):
        self.given += indexes

    def shutdown(self):
        self.shutting_down = True


def test_a_framework_s_tests_go_to_one_process_and_the_longest_begin():
    option = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(option=option, getvalue={"tx": ["2*popen"]}.get)
    scheduler, processes = FrameworkScheduling(config), [Process(0), Process(1)]
    order = ("file", "jax", *reversed(LONGEST), "jax", *LONGEST, "jax", "file")
    tests = [f"{RUNNERS}test_a.py::test_{number}[{name}]" for number, name in enumerate(order)]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, tests)
    scheduler.schedule()
    first = [[order[index] for index in process.given][:2] for process in processes]
    assert first == [[LONGEST[0]] * 2, [LONGEST[1]] * 2]
    for process in processes:
        for index in process.given:
            scheduler.mark_test_complete(process, index)
    given = [{order[index] for index in process.given} for process in processes]
    assert [order[index] for process in processes for index in process.given[2:]] == [
        "jax", "jax", "jax", "file", "file"]
    assert not given[0] & given[1] and given[0] | given[1] == set(order)


def test_tests_under_xdist_are_scheduled_so(request):
    hooks = request.config.hook.pytest_xdist_make_scheduler.get_hookimpls()
    assert any("conftest" in hook.plugin_name for hook in hooks)


def test_frameworks_begin_then_the_files_that_take_long_then_the_others():
    assert [file for file in LONG_FILES if not (ROOT / file).is_file()] == []
    groups = [*LONGEST, "jax", *LONG_FILES, "tests/a.py"]
    assert sorted(reversed(groups), key=place_of) == groups
    assert place_of("tests/a.py") == place_of("tests/b.py")


def test_each_test_that_is_listed_as_slow_exists():
    listed = measured_slow()
    assert len(listed) > 50
    lost = []
    for name in sorted(listed):
        file, _, test = name.partition("::")
        page = ROOT / file
        if not page.is_file() or f"def {test.partition('[')[0]}(" not in page.read_text(encoding="utf-8"):
            lost.append(name)
    assert lost == [], "tests/slow.txt names tests that are gone"


def test_a_listed_test_is_left_out_of_make_test():
    item = SimpleNamespace(nodeid=min(measured_slow()), marked=[])
    item.add_marker = item.marked.append
    item.get_closest_marker = lambda name: name in item.marked
    pytest_collection_modifyitems(SimpleNamespace(), [item])
    assert item.marked == ["slow"]
