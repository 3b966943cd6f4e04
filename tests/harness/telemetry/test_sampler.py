"""The sampler's threads, driven by events and never by sleeping, and what it keeps of a process's samples."""

import contextlib
import threading
import time
from types import SimpleNamespace

import pynvml
import pytest

from harness.machine import nvml
from harness.telemetry import gpm
from harness.telemetry import gpu as gpu_source
from harness.telemetry import sampler as telemetry
from harness.telemetry.sampler import Loop, Sampler, kept, open_sampler
from tests.harness.fake_nvml import FakeNvml, Gpu, install

WINDOWS = [{"window": -1, "start": 10.0, "stop": 10.1}, {"window": 0, "start": 10.2, "stop": 11.0},
           {"window": 1, "start": 11.01, "stop": 11.8}]


class Scripted:
    """A source whose readings count."""

    def __init__(self, name, *kinds):
        self.name = name
        self.counts = dict.fromkeys(kinds, 0)
        self.readings = {kind: lambda seconds, kind=kind: self.read(kind) for kind in kinds}
        self.edges = {}
        self.not_measured = []
        self.restarts = 0

    def restart(self):
        self.restarts += 1

    def describe(self):
        return {"device": self.name}

    def read(self, kind):
        self.counts[kind] += 1
        return {"count": self.counts[kind]}


def hanging(name, release):
    """A GPU whose driver answers once `release` is set."""
    source = Scripted(name, "fast")
    source.edges["fast"] = lambda seconds: {"answered": release.wait(30)}
    return source


def soon():
    return time.monotonic() + 30


def end(loop):
    loop.end()
    assert loop.ended(soon()) and not loop.fault


def silent(sampler):
    return {sample["device"]: sample["broken"] for sample in sampler.samples if sample.get("broken")}


def test_a_window_has_a_sample_on_each_side_and_none_after_the_recording():
    threads = threading.active_count()
    sampler = Sampler([Scripted("host", "slow"), Scripted("gpu0", "fast", "slow"), Scripted("gpu1", "fast", "slow")])
    with sampler.recording(1):
        with sampler.around_window():
            before = len([sample for sample in sampler.samples if sample["kind"] == "edge"])
            began = time.monotonic()
        ended = time.monotonic()
    edges = [sample["seconds"] for sample in sampler.samples if sample["kind"] == "edge"]
    assert before >= 1 and min(edges) <= began and began <= max(edges) <= ended + 1
    kinds = {(sample["device"], sample["kind"]) for sample in sampler.samples}
    assert kinds - {("gpu0", "fast")} == {("host", "slow"), ("gpu0", "slow"), ("gpu0", "edge")}  # fast ones as the time allows
    taken = len(sampler.samples)
    with sampler.around_window():
        pass
    assert len(sampler.samples) == taken and threading.active_count() == threads


def test_each_process_begins_its_totals_anew_and_before_its_first_window_nothing_is_asked():
    source = Scripted("host", "slow", "fast")
    sampler = Sampler([source])
    with sampler.recording(0):
        pass
    assert (source.restarts, source.counts["slow"], sampler.samples) == (0, 0, [])
    for process in range(2):
        with sampler.recording(0), sampler.around_window():
            assert source.restarts == process + 1
        assert len(sampler.samples) == len({id(sample) for sample in sampler.samples}) > 0


def test_a_sampler_without_sources_starts_no_thread():
    sampler, threads = Sampler(), threading.active_count()
    with sampler.recording(1), sampler.around_window():
        assert threading.active_count() == threads
    assert sampler.samples == []


def test_a_loop_polls_at_once_when_asked_every_period_and_as_it_ends():
    polled = threading.Semaphore(0)
    loop = Loop(polled.release, 0.001)
    loop.start()
    assert all(polled.acquire(timeout=30) for _ in range(5))
    end(loop)
    slow = []
    loop = Loop(lambda: slow.append(1), 1e6)
    loop.start()
    loop.wait_for(loop.poll_soon(), soon())
    end(loop)
    assert len(slow) == 3


def test_what_takes_long_to_ask_is_asked_at_edges_only():
    polled, beats = [], threading.Semaphore(0)
    loop = Loop(beats.release, 0.001, lambda: polled.append("edge"))
    loop.start()
    assert all(beats.acquire(timeout=30) for _ in range(5))
    loop.wait_for(loop.poll_soon(), soon())
    end(loop)
    assert polled == ["edge"] * 3  # as it begins, when asked, as it ends


def test_asked_often_it_goes_on_with_its_beat():
    """As in the warm-up of a fast network, whose windows of one step have edges every few milliseconds."""
    beats = threading.Semaphore(0)
    loop = Loop(beats.release, 0.05, lambda: None)
    loop.start()
    for _ in range(1000):
        loop.wait_for(loop.poll_soon(), soon())
    while beats.acquire(blocking=False):
        pass
    assert beats.acquire(timeout=10)  # not 50 s later
    end(loop)


def test_a_gpu_that_answers_late_holds_up_no_other():
    late, prompt = Scripted("gpu0", "fast"), Scripted("gpu1", "fast")
    asked, answered, polled = threading.Event(), threading.Event(), threading.Semaphore(0)

    def read_late(seconds):
        asked.set()
        answered.wait(30)
        return {}

    def read_promptly(seconds):
        polled.release()
        return {}

    late.readings["fast"], prompt.readings["fast"] = read_late, read_promptly
    late.edges["fast"] = lambda seconds: {}
    sampler = Sampler([late, prompt])
    with sampler.recording(2), sampler.around_window():
        assert asked.wait(30)
        while polled.acquire(blocking=False):
            pass
        assert all(polled.acquire(timeout=30) for _ in range(3))
        answered.set()


def test_a_fault_of_ours_in_a_thread_is_loud():
    source = Scripted("host", "fast")
    source.readings["fast"] = lambda seconds: 1 / 0
    sampler, threads = Sampler([source, Scripted("gpu0", "fast")]), threading.active_count()
    with pytest.raises(ZeroDivisionError), sampler.recording(1), sampler.around_window():
        pass
    assert threading.active_count() == threads  # the others have ended all the same


def test_a_driver_that_hangs_costs_samples_and_not_the_campaign():
    release = threading.Event()
    loop = Loop(lambda: release.wait(30), 0.001)
    loop.start()
    loop.wait_for(loop.poll_soon(), time.monotonic())
    loop.wait_for(loop.poll_soon(), soon())  # not again
    loop.end()
    assert not loop.ended(soon())
    release.set()
    loop.thread.join(30)
    assert not loop.thread.is_alive()


def test_a_gpu_that_owes_a_process_an_answer_is_left_out_of_the_next_ones_until_it_came(monkeypatch):
    release = threading.Event()
    late, prompt = hanging("gpu0", release), Scripted("gpu1", "fast")
    sampler = Sampler([late, prompt])
    monkeypatch.setattr(telemetry, "HANG_SECONDS", 0.01)
    with sampler.recording(1), sampler.around_window():
        pass
    assert silent(sampler) == {"gpu0": "gpu: its driver does not answer"}
    monkeypatch.setattr(telemetry, "HANG_SECONDS", 30)
    with sampler.recording(2), sampler.around_window():
        began = time.monotonic()
    assert silent(sampler) == {"gpu0": "gpu: no answer from its driver since an earlier process"}
    only, = (sample for sample in sampler.samples if sample["device"] == "gpu0")
    assert (only["kind"], only["seconds"] >= began, late.restarts, prompt.restarts) == ("edge", True, 1, 1)
    with sampler.recording(0), sampler.around_window():
        pass
    assert sampler.samples == []  # a process on other devices is told nothing of it
    release.set()
    for _, loop in sampler.unanswered:
        loop.thread.join(30)
    with sampler.recording(2), sampler.around_window():
        pass
    assert (silent(sampler), late.restarts) == ({}, 2)


def test_a_late_answer_of_an_earlier_process_moves_no_total(monkeypatch):
    """Else its power, stamped before the restart, is integrated over a negative time."""
    gpu, asked, release = Gpu(), threading.Event(), threading.Event()
    install(monkeypatch, FakeNvml(gpu), nvml, gpu_source, gpm, telemetry)
    source, read = gpu_source.Gpu(gpu, "gpu0"), nvml.read_fields

    def hang(handle, fields):
        asked.set()
        release.wait(30)
        return read(handle, fields)

    monkeypatch.setattr(nvml, "read_fields", hang)
    monkeypatch.setattr(telemetry, "HANG_SECONDS", 0.01)
    sampler, others = Sampler([source]), threading.enumerate()
    with sampler.recording(1), sampler.around_window():
        assert asked.wait(30)
    threads = [thread for thread in threading.enumerate() if thread not in others]
    monkeypatch.setattr(nvml, "read_fields", read)
    monkeypatch.setattr(telemetry, "HANG_SECONDS", 30)
    with sampler.recording(1), sampler.around_window():
        release.set()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
    assert [sample.get("broken") for sample in sampler.samples] == ["gpu: no answer from its driver since an earlier process"]
    with sampler.recording(1), sampler.around_window():
        pass
    joules = [sample["energy_joules"] for sample in sampler.samples if sample["kind"] != "slow"]
    assert silent(sampler) == {} and joules[0] == 0 and joules == sorted(joules)


def test_a_driver_that_answers_before_its_process_ends_owes_nothing(monkeypatch):
    release = threading.Event()
    sampler = Sampler([hanging("gpu0", release)])
    monkeypatch.setattr(telemetry, "HANG_SECONDS", 0.01)
    with sampler.recording(1):
        with sampler.around_window():
            monkeypatch.setattr(telemetry, "HANG_SECONDS", 30)
        release.set()
        assert sampler.loops[0][-1].missed.wait(30)
    assert silent(sampler) == {} and not sampler.awaits_an_answer()


def test_eight_gpus_that_hang_are_waited_for_together(monkeypatch):
    release = threading.Event()
    sampler = Sampler([hanging(f"gpu{number}", release) for number in range(8)])
    monkeypatch.setattr(telemetry, "HANG_SECONDS", 0.01)
    waits, wait_for, ended = {"wait_for": [], "ended": []}, Loop.wait_for, Loop.ended
    monkeypatch.setattr(Loop, "wait_for", lambda self, done, until: waits["wait_for"].append(until) or wait_for(self, done, until))
    monkeypatch.setattr(Loop, "ended", lambda self, until: waits["ended"].append(until) or ended(self, until))
    with sampler.recording(8), sampler.around_window():
        pass
    # All eight until one moment: before the window, after it, and at the end.
    assert [(len(untils), len(set(untils))) for untils in waits.values()] == [(16, 2), (8, 1)]
    assert len(silent(sampler)) == 8
    release.set()
    for _, loop in sampler.unanswered:
        loop.thread.join(30)


def test_all_loops_are_asked_to_end_before_one_is_waited_for():
    together = threading.Barrier(2, timeout=60)  # a last poll that waits for the other one's
    sources = [Scripted("gpu0", "fast"), Scripted("gpu1", "fast")]
    for source in sources:
        source.edges["fast"] = lambda seconds: {"place": together.wait()}
    sampler = Sampler(sources)
    with sampler.recording(2), sampler.around_window():
        pass
    assert not sampler.awaits_an_answer() and len([sample for sample in sampler.samples if sample["kind"] == "edge"]) == 8


def sample(seconds, device="gpu0", kind="fast", **columns):
    return {"device": device, "kind": kind, "seconds": seconds, "broken": "", **columns}


def test_kept_are_both_sides_of_each_edge_and_few_between():
    polls = [sample(9 + number / 50, event_reasons=0) for number in range(1, 200)]
    rows = kept(polls, WINDOWS)
    times = [row["seconds"] for row in rows]
    assert times == [10.0, 10.2, 10.7, 11.0, 11.02, 11.52, 11.8]
    assert kept(polls, []) == []


def test_slow_samples_are_all_kept_and_each_kind_has_its_own_edges():
    slow = [sample(10.05 + number / 2, kind="slow", processes=1) for number in range(-2, 6)]
    rows = kept([*slow, sample(9.0), sample(12.0), sample(10.5, "host", "slow")], WINDOWS)
    assert [(row["device"], row["kind"], row["seconds"]) for row in rows] == [
        ("gpu0", "slow", 9.55), ("gpu0", "slow", 10.05), ("gpu0", "slow", 10.55), ("gpu0", "slow", 11.05), ("gpu0", "slow", 11.55),
        ("gpu0", "slow", 12.05), ("gpu0", "fast", 9.0), ("gpu0", "fast", 12.0), ("host", "slow", 10.5)]


def test_what_a_dropped_sample_saw_goes_over_to_the_next_one():
    polls = [sample(9.9, event_reasons=0), sample(10.5, event_reasons=0), sample(10.52, event_reasons=0x4),
             {"device": "gpu0", "kind": "fast", "seconds": 10.54, "broken": "pcie: a gap"},
             sample(10.56, event_reasons=0x20, broken="pcie: a gap"), sample(10.8, event_reasons=0), sample(12.0, event_reasons=0)]
    rows = kept(polls, [WINDOWS[0], {"window": 0, "start": 9.95, "stop": 11.9}])
    assert [(row["seconds"], row["event_reasons"], row["broken"]) for row in rows] == [
        (9.9, 0, ""), (10.5, 0, ""), (10.8, 0x24, "pcie: a gap"), (12.0, 0, "")]


def test_rows_are_rounded_to_ten_microseconds():
    assert kept([sample(10.123456789)], WINDOWS)[0]["seconds"] == 10.12346


def test_a_campaign_on_cpus_asks_no_gpu(monkeypatch):
    fake = install(monkeypatch, FakeNvml(Gpu()), nvml, gpu_source, gpm, telemetry)
    with open_sampler(0, None) as sampler:
        assert [source.name for source in sampler.sources] == ["host"]
    assert fake.calls == []


@pytest.mark.parametrize(("visible", "names", "reasons"), [
    (None, ["host", "gpu0", "gpu1"], []),
    ("1", ["host", "gpu0"], ["traffic and energy of 1 GPUs: NVML cannot find them (CUDA_VISIBLE_DEVICES=1; "
                             "a MIG slice has no counters)"]),
])
def test_the_gpus_of_a_campaign_are_sampled_and_missing_ones_said(monkeypatch, visible, names, reasons):
    install(monkeypatch, FakeNvml(Gpu("GPU-a"), Gpu("GPU-b")), nvml, gpu_source, gpm, telemetry)
    with open_sampler(2, visible) as sampler:
        assert [source.name for source in sampler.sources] == names
        assert [reason for reason in sampler.describe()["not_measured"] if reason.startswith("traffic")] == reasons


def test_a_driver_that_does_not_answer_is_a_reason(monkeypatch):
    broken = FakeNvml(nvmlInit=gpu_source.pynvml.NVMLError(gpu_source.pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    install(monkeypatch, broken, nvml, gpu_source, gpm)
    with open_sampler(1, None) as sampler:
        assert sampler.describe()["not_measured"][0] == "traffic and energy of GPUs: NVML does not answer (Driver Not Loaded)"


@pytest.mark.parametrize("leave", [lambda: None, pytest.fail.Exception], ids=["done", "failed"])
def test_nothing_is_shut_down_under_a_call_that_hangs(monkeypatch, leave):
    gpu, asked, release = Gpu(), threading.Event(), threading.Event()
    fake = install(monkeypatch, FakeNvml(gpu), nvml, gpu_source, gpm, telemetry)
    read, freed = nvml.read_fields, []

    def hang(handle, fields):
        asked.set()
        release.wait(30)
        return read(handle, fields)

    monkeypatch.setattr(telemetry, "HANG_SECONDS", 0.01)
    monkeypatch.setattr(gpm.Gpm, "close", lambda self: freed.append(self))
    with contextlib.suppress(pytest.fail.Exception), open_sampler(1, None) as sampler:
        monkeypatch.setattr(nvml, "read_fields", hang)
        with sampler.recording(1), sampler.around_window():
            assert asked.wait(30)
            if error := leave():
                raise error
    assert sampler.awaits_an_answer() and not freed and "nvmlShutdown" not in fake.calls
    release.set()
    for _, loop in sampler.unanswered:
        loop.thread.join(30)
    assert not sampler.awaits_an_answer()


def interrupted(patch, place):
    """Have Ctrl-C come as a thread has just started, before the sampler's loops are ended, or while they are."""
    def ctrl_c(*_):
        raise KeyboardInterrupt

    if place == "start":
        start = threading.Thread.start
        patch.setattr(threading.Thread, "start", lambda thread: (start(thread), ctrl_c()))
    else:
        patch.setattr(*{"before the end": (Sampler, "_end"), "ending": (Loop, "end"), "waiting": (Loop, "ended")}[place], ctrl_c)


@pytest.mark.parametrize("place", ["start", "before the end", "ending", "waiting"])
def test_ctrl_c_shuts_nothing_down_under_the_threads_that_it_leaves(monkeypatch, place):
    gpu = Gpu()
    fake = install(monkeypatch, FakeNvml(gpu), nvml, gpu_source, gpm, telemetry)
    others = threading.enumerate()
    with pytest.raises(KeyboardInterrupt), open_sampler(1, None) as sampler, monkeypatch.context() as patch:
        if place == "start":
            interrupted(patch, place)
        with sampler.recording(1), sampler.around_window():
            interrupted(patch, place)
    left = [thread for thread in threading.enumerate() if thread not in others]
    assert sampler.awaits_an_answer() == bool(left)
    assert ("nvmlShutdown" in fake.calls) == (not left)
    for _, loop in sampler.unanswered:
        loop.end()
        assert loop.ended(soon())


def test_a_campaign_that_ends_well_gives_everything_back(monkeypatch):
    supported = type("Support", (), {"isSupportedDevice": 1})
    system = {"nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t, "nvmlGpmSampleGet": None, "nvmlGpmMetricsGet": lambda asked: asked}
    fake = install(monkeypatch, FakeNvml(Gpu(nvmlGpmQueryDeviceSupport=supported), **system), nvml, gpu_source, gpm, telemetry)
    with open_sampler(1, None) as sampler, sampler.recording(1), sampler.around_window():
        pass
    assert fake.calls[-3:] == ["nvmlGpmSampleFree", "nvmlGpmSampleFree", "nvmlShutdown"]


def test_the_gpu_on_which_a_worker_holds_most_counts_and_other_processes_do_not(monkeypatch):
    def held(**by_process):
        return Gpu(f"GPU-{len(by_process)}", nvmlDeviceGetComputeRunningProcesses=[
            SimpleNamespace(pid=int(name[1:]), usedGpuMemory=used) for name, used in by_process.items()])

    install(monkeypatch, FakeNvml(held(p7=5, p8=3, p9=100), held(p7=6)), nvml, gpu_source, gpm, telemetry)
    with open_sampler(2, None) as sampler:
        for gpus, workers, most in [(2, {7, 8}, 8), (2, {7}, 6), (1, {7}, 5), (2, {1}, None)]:
            with sampler.recording(gpus):
                with sampler.around_window():
                    # Memory is asked for in a thread of its own.
                    until = time.monotonic() + 30
                    while not all(gpu.held for gpu in sampler.active[1:]) and time.monotonic() < until:
                        time.sleep(0.01)
                assert sampler.held_by(lambda workers=workers: workers) == most
        with sampler.recording(0):
            assert sampler.held_by(lambda: pytest.fail("asked for nothing")) is None
