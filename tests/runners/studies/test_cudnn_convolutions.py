"""cuDNN's bench, with a simulated library: operands in their order, and each way to fail told from the others."""

import pytest

from harness.workers.worker import Unsupported, Worker

POINT = {"n": 3, "c": 4, "h": 9, "w": 7, "k": 6, "r": 3, "s": 2, "stride": 2, "padding": 1, "groups": 2, "math": "fma"}


@pytest.fixture
def worker(tmp_path, interpreter_of):
    with Worker(interpreter_of("pytorch"), "tests.faults.studies.cudnn_simulated:Bench", tmp_path / "log") as started:
        started.ask("open", 300, device="cuda", threads=1)
        yield started


@pytest.mark.parametrize("kind", ["forward", "backward_data", "backward_filter"])
def test_every_pass_is_called_with_its_own_operands(worker, kind):
    found = worker.ask("place", 60, point={**POINT, "pass": kind})["candidates"]
    right = found.pop("IMPLICIT_GEMM" if kind == "forward" else "ALGO_0")
    assert right.pop("error") < 1e-6
    assert right == {"status": "ok", "reason": "", "operations": 1, "workspace_bytes": 0, "rank": 0}
    assert found["WINOGRAD"] == {"status": "unsupported", "reason": "CUDNN_STATUS_3000 (3000)"}
    assert found["FFT"]["status"] == "ok" and not found["FFT"]["error"] <= 1e-3  # a value that was left out is no number


def test_what_needs_more_memory_than_there_is_and_what_breaks(worker):
    found = worker.ask("place", 60, point={**POINT, "pass": "forward"})["candidates"]
    assert found["IMPLICIT_PRECOMP_GEMM"]["reason"] == "needs a workspace of 1024.0 GiB, more than is free"
    assert found["IMPLICIT_PRECOMP_GEMM"]["status"] == "unsupported"
    assert found["DIRECT"] == {"status": "failed", "reason": "RuntimeError: CUDNN_STATUS_4000 (4000)"}
    assert len(worker.ask("time", 60, runs=[["GEMM", 2]])["windows"]) == 1


def test_on_a_cpu_it_is_refused(tmp_path, interpreter_of):
    with (Worker(interpreter_of("pytorch"), "runners.studies.cudnn_convolutions:Bench", tmp_path / "log") as started,
          pytest.raises(Unsupported, match="cuDNN computes on NVIDIA's GPUs")):
        started.ask("open", 300, device="cpu", threads=1)
