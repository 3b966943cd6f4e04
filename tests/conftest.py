"""What tests of several folders share: a judge and real workers, with and without faults."""

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from tempfile import gettempdir
from uuid import uuid4

# Products of tests are small: OpenBLAS's other threads would only wait, and busily.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy  # noqa: F401  it reads the variable as it is loaded; workers go without
import pytest

del os.environ["OPENBLAS_NUM_THREADS"]
import networks
from harness.environments import recipes, store
from harness.inference.judge import VNNI
from harness.machine import hardware
from harness.proof.judge import Judge
from harness.workers.ranks import Launch, Ranks
from harness.workers.worker import Failed, Worker
from tests.parallel import parallel_of
from tests.scheduling import FrameworkScheduling

HOST = "tests.faults.host"
KEPT = 4  # workers of frameworks that wait for another test
# TorchInductor's pool of compilers imports PyTorch once a core and rank, for a kernel or two.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def _cache():
    """Return a folder for what the next run can use too: where the home is read-only, a temporary one."""
    given = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "dlbench")
    with suppress(OSError):
        given.mkdir(parents=True, exist_ok=True)
    return given if os.access(given, os.W_OK) else Path(gettempdir(), f"dlbench-tests-{os.getuid()}")


# Many workers compile the same programs, in this run and in the next.
COMPILED = _cache() / "compiled"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(COMPILED / "inductor"))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
ABLE = hardware.instructions()
needs_avx512 = pytest.mark.skipif("avx512bw" not in ABLE, reason="this processor has no AVX-512, without which "
                                  "oneDNN has no LSTM in half precision, and MXNet and OpenVINO no bf16")
needs_vnni = pytest.mark.skipif(not ABLE & VNNI, reason="this processor has no VNNI: sums of 8-bit products saturate")
# What torch.compile builds with on CPUs.
needs_compiler = pytest.mark.skipif(not which("g++"), reason="no g++ here: apt-get install g++")
TASK = {"device": "cpu", "devices": 1, "threads": 1, "precision": "fp32", "tuning": "stock"}


def pytest_xdist_make_scheduler(config, log):
    """Keep a framework's tests in one process of pytest-xdist, so that they share its worker."""
    return FrameworkScheduling(config, log)


def measured_slow():
    """Return the names of the tests that slow.txt lists: a comment, or seconds and a name a line."""
    lines = Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines()
    return {line.partition(" ")[2] for line in lines if not line.startswith("#")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the tests of slow.txt, and count the slow ones for the process that reports.

    pytest-xdist does not say what it drops.
    """
    listed = measured_slow()
    for item in items:
        if item.nodeid in listed:
            item.add_marker("slow")
    slow = sum(1 for item in items if item.get_closest_marker("slow"))
    getattr(config, "workeroutput", {})["slow"] = slow
    config.slow_tests = slow


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.slow_tests = getattr(node, "workeroutput", {}).get("slow", 0)


def pytest_terminal_summary(terminalreporter, config):
    """Say how many tests `make test` leaves out."""
    slow = getattr(config, "slow_tests", 0)
    if slow and config.option.markexpr == "not slow":
        terminalreporter.write_line(f"{slow} slow tests were left out: make test-slow runs them")


@pytest.fixture(scope="session")
def judge(tmp_path_factory):
    """The judge of all verdicts: two samples, two steps. It keeps the reference's answers."""
    return Judge(tmp_path_factory.mktemp("judge"), samples=2, steps=2, seed=1, limit=600)


@pytest.fixture
def verdict(judge, worker_for):
    """Return the verdict on a network in a framework's worker: `verdict("pytorch", "tiny_fcn")`.

    The network is one of ours by its name, or any other.
    `plant` changes the network's JSON on its way to the worker. `fault` puts a runner of
    tests.faults in the place of the framework's, as "Ceil" or "processes.ranks:Sum". Other keywords change
    the task, as `devices=2, strategy="ddp"`. Skips with its reason if the framework has no
    environment here.
    """

    def ask(framework, network, plant=None, fault="", **task):
        task = {**TASK, **task}
        with worker_for(framework, fault, task) as worker:
            worker.ask("hello", limit=300)
            asked = Planted(worker, plant) if plant else worker
            asked_for = networks.get(network) if isinstance(network, str) else network
            return judge.judge(asked, asked_for, task)

    return ask


@pytest.fixture(scope="session")
def worker_for(tmp_path_factory):
    """Lend a worker of a framework or of a planted fault: `with worker_for("jax", "Ceil", task)`.

    Workers stay for later tests that need one alike, as in a campaign that keeps its workers. The
    reference's do not: they start in no time.
    """
    kept, folder = {}, tmp_path_factory.mktemp("workers")

    @contextmanager
    def lend(framework, fault, task):
        module = named(framework, fault) or recipes.load(framework).runner
        if framework == "reference":
            with started(framework, module, folder / f"{uuid4()}.log", task) as worker:
                yield worker
            return
        # One build leaves nothing behind for the next, except in MXNet: it takes its threads from
        # the variable as it is loaded, by default one, and stays with its first precision.
        own = TASK if framework == "mxnet" else ("device", "devices", "threads")
        parallel = recipes.load(framework).parallel
        ranks = parallel and parallel.has_ranks(task.get("strategy", ""))
        alike = (framework, os.environ.get("OMP_NUM_THREADS", "1"), ranks,
                 *(task.get(key, TASK[key]) for key in own))
        worker = kept.pop(alike, None)
        if worker is None:
            worker = started(framework, HOST, folder / f"{uuid4()}.log", task)
        elif isinstance(worker, Ranks):
            task["ranks"] = worker.launch.ranks
        try:
            worker.ask("host", 300, name=module)
            yield worker
            with suppress(Failed):  # where it has died or hangs
                worker.ask("rest", 20)
                kept[alike] = worker
            if len(kept) > KEPT:
                kept.pop(next(iter(kept))).end()
        finally:
            if kept.get(alike) is not worker:
                worker.end()

    yield lend
    for worker in kept.values():
        worker.end()


@pytest.fixture(scope="session")
def interpreter_of():
    """Find a framework's interpreter, as in `interpreter_of("jax")`; skips if there is none."""
    return lambda framework: environment_of(framework).interpreter


def named(framework, fault):
    """The module and class of a planted fault, by default one of the framework's own file."""
    return f"tests.faults.{fault if ':' in fault else f'{framework}:{fault}'}" if fault else ""


def started(framework, module, log, task):
    """Start a worker for `task`, as `harness.workers.launch.start` does for a trial.

    Writes into `task` how many ranks it has.
    """
    environment, devices = environment_of(framework), task.get("devices", 1)
    module = module or recipes.load(framework).runner
    variables = {"CUDA_VISIBLE_DEVICES": "", **environment.variables}
    if devices == 1:
        return Worker(environment.interpreter, module, log, variables)
    parallel = parallel_of(module) or recipes.load(framework).parallel
    variables |= {"OMP_NUM_THREADS": "1", **parallel.variables_of("cpu", devices)}
    if not parallel.has_ranks(task.get("strategy", "")):
        return Worker(environment.interpreter, module, log, variables)
    task["ranks"] = devices
    return Ranks(Launch(parallel, devices), environment.interpreter, module, log, variables)


class Planted:
    """A worker that is told of another network than the judge believes."""

    def __init__(self, worker, change):
        self.worker = worker
        self.change = change
        self.token = worker.token

    def ask(self, command, limit, **arguments):
        if command == "build":
            self.change(arguments["network"])
        return self.worker.ask(command, limit, **arguments)


def environment_of(framework):
    """The framework's environment: that of $DLBENCH_<FRAMEWORK>_PYTHON, the driver's for the
    reference, or the one that dlbench has built."""
    given = os.environ.get(f"DLBENCH_{framework.upper()}_PYTHON")
    if given:
        return store.existing(framework, Path(given), "cpu")
    if framework == "reference":
        return store.existing(framework, Path(sys.executable), "cpu")
    found = store.find(framework, recipes.load(framework).default, "cpu")
    if not found:
        pytest.skip(f"no environment for {framework} here: dlbench env build {framework}")
    return found
