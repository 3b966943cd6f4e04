"""scripts/waiting_streams.py needs a GPU; which of NVML's readings count does not, nor what it says where there is none."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import environment_of

SCRIPTS = Path(__file__).parents[2] / "scripts"
ASKING = """
import waiting_streams as script
link = script.Link(None)
link.read = [(1.01, 9e9), (1.03, 1e6), (1.05, 3e6), (1.07, 9e9)]
print(script.received(link, script.Span(1.0, 1.06, 10)))
"""


@pytest.fixture
def run(tmp_path):
    """Run Python with PyTorch and a module that stands for nvidia-ml-py: `run("-c", code)`."""
    (tmp_path / "pynvml.py").touch()
    environment = environment_of("pytorch")
    paths = {"PYTHONPATH": f"{tmp_path}:{SCRIPTS}", "PYTHONDONTWRITEBYTECODE": "1"}
    return lambda *words: subprocess.run([environment.interpreter, *words], capture_output=True, text=True, timeout=120,
                                         env={**os.environ, **environment.variables, **paths})


def test_a_reading_that_averages_beyond_its_case_does_not_count(run):
    done = run("-c", ASKING)
    assert done.stdout.strip() == str({"kernels": 10, "seconds": "0.060", "readings": 2, "received_megabytes_per_second": "2.0",
                                       "bytes_per_kernel": "12000"}), done.stderr


def test_a_machine_without_a_gpu_is_told_so(run):
    done = run(SCRIPTS / "waiting_streams.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "scripts/waiting_streams.py: PyTorch sees no GPU; run it where one is\n"
