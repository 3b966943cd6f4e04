"""What starts a framework's launcher or servers on one node: it hands on the exit code, and nothing of it is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.cluster import allocation
from harness.environments import recipes
from harness.workers.ranks import Launch, Meeting
from tests.harness.cluster.conftest import wait

CHECKOUT = Path(__file__).resolve().parents[2]
MEETING = Meeting(["n1", "n2"], ["10.0.0.1", "10.0.0.2"], 5000)
# A stand-in for MXNet: what a helper imports. It says which part it has, and stays.
MXNET = """\
import os, pathlib, time
role = os.environ["DMLC_ROLE"]
known = ["DLBENCH_SECRET" in os.environ, os.environ["DMLC_PS_ROOT_URI"], os.environ["DMLC_NODE_HOST"], str(os.getpid())]
pathlib.Path(__file__).with_name(role).write_text(" ".join(map(str, known)))
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path):
    """Start a module of `runners` as node 0 or 1 of two, whose words are Python's."""
    (tmp_path / "mxnet.py").write_text(MXNET)

    started = []

    def start(module, node, *words):
        variables = {**os.environ, "SLURM_PROCID": str(node), "DLBENCH_NODES": "10.0.0.1,10.0.0.2", "DLBENCH_PORT": "5000",
                     "DLBENCH_SECRET": "hidden", "PYTHONPATH": f"{CHECKOUT}:{tmp_path}"}
        command = [sys.executable, "-m", module, *words]
        started.append(subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_a_launchers_folder_is_its_users_own_and_goes_with_it(run):
    program = "import os, sys; print(sys.argv[1:], oct(os.stat(sys.argv[2]).st_mode)); sys.exit(7)"
    ran = run("runners.node", 1, "-c", program, "--rank={node}", "{scratch}")
    said, _ = ran.communicate(timeout=60)
    assert ran.returncode == 7
    words, mode = said.rsplit(maxsplit=1)
    scratch = words.split("'")[3]
    assert words == f"['--rank=1', '{scratch}']" and mode == "0o40700"
    assert not Path(scratch).exists()


def test_a_launcher_that_is_ended_takes_its_folder_along(run):
    ran = run("runners.node", 0, "-c", "import sys, time; print(sys.argv[1], flush=True); time.sleep(600)", "{scratch}")
    scratch = ran.stdout.readline().strip()
    ran.terminate()
    assert ran.wait(60) == 128 + signal.SIGTERM
    assert not Path(scratch).exists()


@pytest.mark.parametrize(("node", "roles"), [(0, ["scheduler", "server"]), (1, ["server"])])
def test_mxnets_servers_know_no_secret_and_end_with_the_worker(run, tmp_path, node, roles):
    worker = "import os, sys; print(os.environ['DMLC_ROLE'], os.environ['DLBENCH_SECRET'], flush=True); input(); sys.exit(3)"
    ran = run("runners.mxnet.servers", node, "-c", worker)
    assert ran.stdout.readline() == "worker hidden\n"
    told = [wait(lambda role=role: (tmp_path / role).exists() and (tmp_path / role).read_text()).split() for role in roles]
    assert [each[:3] for each in told] == [["False", "10.0.0.1", f"10.0.0.{node + 1}"]] * len(roles)
    assert sorted(file.name for file in tmp_path.iterdir() if file.name in ("scheduler", "server")) == roles
    assert ran.poll() is None
    ran.terminate()
    assert ran.wait(60) == 128 + signal.SIGTERM
    assert not any(psutil.pid_exists(int(each[3])) for each in told)


@pytest.mark.parametrize(("framework", "command"), [
    ("paddle", "srun python -m runners.node -m paddle.distributed.launch --master=10.0.0.1:5000 --nnodes=2 --rank={node} --nproc_per_node=4 "
               "--log_dir={scratch} --enable_gpu_log=false python -m"),
    ("mxnet", "srun python -m runners.mxnet.servers -m"),
    ("cntk", "mpiexec --allow-run-as-root --oversubscribe --bind-to none --host n1:4,n2:4 -n 8 python -m"),
    ("pytorch", "srun python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --rdzv-id=5000 --rdzv-backend=c10d "
                "--rdzv-endpoint=10.0.0.1:5000 --max-restarts=0 -m"),
    ("jax", "srun python -m"), ("tensorflow", "srun python -m")])
def test_the_command_of_several_nodes(monkeypatch, framework, command):
    monkeypatch.setattr(allocation, "step", lambda count: ["srun"])
    launch = Launch(recipes.load(framework).parallel, 8, 2, 8)
    assert launch.command_on_nodes("python", "X", MEETING) == f"{command} runners X".split()
