"""A Slurm of two nodes on this machine, and what the tests of campaigns on it share."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
SCRIPT = CHECKOUT / "scripts" / "slurm-nodes"
SUITE = """\
frameworks: [{frameworks}]
networks: [{networks}]
device: cpu
threads: 1
processes: {processes}
windows: 2
window_seconds: 0.02
peaks: false
data: host
"""


thorough = pytest.mark.skipif("DLBENCH_THOROUGH" not in os.environ, reason="takes minutes: scripts/check-cluster runs it")


class Cluster:
    """Two nodes in `folder`; n2's clock is 1,000 s ahead where the kernel lends namespaces."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.namespaces = (folder / "n1.pid").exists()

    def on(self, node: str, *words: str, **options) -> subprocess.CompletedProcess[str]:
        """Run a command on a node."""
        return subprocess.run(self.words(node, *words), cwd=CHECKOUT, capture_output=True, text=True, timeout=900, **options)

    def words(self, node: str, *words: str) -> list[str]:
        return [str(self.folder / "on"), node, *words]

    def dlbench(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.on("n1", sys.executable, "-m", "harness.start", *words)

    def suite(self, name: str, frameworks="reference", networks="tiny_fcn", processes=2, more="") -> str:
        file = self.folder / f"{name}.yaml"
        file.write_text(SUITE.format(frameworks=frameworks, networks=networks, processes=processes) + more)
        return str(file)

    def start(self, name: str, *words: str) -> subprocess.Popen[str]:
        """Start a campaign that goes to Slurm; its records come into `folder`/`name`."""
        command = self.words("n1", sys.executable, "-m", "harness.start", "run", *words, "--out", str(self.folder / name))
        # A shell's background job ignores Ctrl-C, and so would all that the tests start.
        return subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def job(self) -> str:
        """Wait for the newest job to run and return its number."""
        return wait(lambda: self.on("n1", "squeue", "-h", "-t", "R", "-o", "%A").stdout.split()[-1:])[0]

    def processes(self, name: str) -> list[str]:
        """The rows of the processes that have ended."""
        file = self.folder / name / "processes.csv"
        return file.read_text().splitlines()[1:] if file.exists() else []

    def events(self, name: str) -> str:
        """What a campaign has told of itself so far."""
        file = self.folder / name / "logs" / "events.jsonl"
        return file.read_text() if file.exists() else ""

    def strangers(self) -> list[str]:
        """The workers and ranks on either node that have not ended."""
        return [words for words, _ in self._running()]

    def wire(self) -> str:
        """Where the ranks that train now have found the driver."""
        return next(variables["DLBENCH_WIRE"] for _, variables in self._running() if "DLBENCH_WIRE" in variables)

    def lose(self, node: str, job: str) -> None:
        """Kill a node's slurmd, and wait until Slurm has put its job back into the queue."""
        self.on(node, "kill", "-KILL", (self.folder / f"slurmd.{node}.pid").read_text().strip())
        self.on("n1", "scontrol", "update", f"nodename={node}", "state=down", "reason=dead")
        wait(lambda: "PENDING" in self.on("n1", "squeue", "-h", "-j", job, "-o", "%T").stdout)

    def revive(self, node: str) -> None:
        """Start a node's slurmd again."""
        assert self.on(node, "slurmd", "-N", node, "-f", str(self.folder / "slurm.conf")).returncode == 0
        self.on("n1", "scontrol", "update", f"nodename={node}", "state=resume")

    def _running(self) -> list[tuple[str, dict[str, str]]]:
        found = []
        for process in psutil.process_iter():
            try:
                words, variables = process.cmdline(), process.environ()
            except psutil.Error:
                continue
            started = {"runners", "runners.node", "runners.mxnet.servers", "import mxnet"} & set(words)
            if started and str(self.folder) in variables.get("SLURM_CONF", ""):
                found.append((" ".join(words), variables))
        return found


def wait(answer, seconds: float = 300.0):
    """Return the first true answer."""
    until = time.monotonic() + seconds
    while not (found := answer()):
        assert time.monotonic() < until, f"nothing in {seconds} s"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Start a cluster, or skip with the reason why none can be had here; leave nothing running."""
    # The nodes reach each other and no index of packages, so what they run is built here.
    built = subprocess.run([sys.executable, "-m", "harness.start", "env", "build", "reference", "--device", "cpu"],
                           cwd=CHECKOUT, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stdout + built.stderr
    folder = tmp_path_factory.mktemp("slurm")
    started = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, env={**os.environ, "CLOCK": "1000"}, timeout=300)
    if started.returncode == 2:
        pytest.skip(f"no Slurm: {started.stderr.strip()}")
    assert started.returncode == 0, started.stderr
    daemons = [int(file.read_text()) for file in folder.glob("n?.pid")]
    yield Cluster(folder)
    subprocess.run([SCRIPT, "stop", folder], check=True, timeout=60)
    wait(lambda: not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in daemons), 10)
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(each.info["cmdline"] or ())]
