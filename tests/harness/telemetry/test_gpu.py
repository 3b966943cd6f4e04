"""A GPU's counters and sensors as rows of counters.csv, from a made-up NVML: wraps, gaps, resets, losses, old drivers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pynvml
import pytest

from harness.machine import nvml
from harness.telemetry import gpm
from harness.telemetry import gpu as gpu_source
from harness.telemetry.cumulative import pcie_bytes_per_second
from tests.harness.fake_nvml import NOT_SUPPORTED, UINT, ULONGLONG, FakeNvml, Gpu, install

OLD = {186: (UINT, 500_000)}  # a driver without PCIe counters
LINKS = (1 << 32) - 1


@pytest.fixture
def fake(monkeypatch):
    """Install a made-up NVML of the given GPUs."""
    return lambda *gpus, **system: install(monkeypatch, FakeNvml(*gpus, **system), nvml, gpu_source, gpm)


def reads(gpu, source, *polls):
    """Poll with the PCIe counters at (received, sent) at each moment."""
    rows = []
    for seconds, received, sent in polls:
        gpu.fields.update({198: (UINT, received), 197: (UINT, sent)})
        rows.append(source.read_counters(seconds))
    return rows


def test_counters_become_totals_since_the_restart(fake):
    gpu = Gpu()
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    rows = reads(gpu, source, (1.0, 5_000, 2**32 - 10), (1.02, 25_000, 30))
    assert rows[1] == {"pcie_rx_bytes": 20_000, "pcie_tx_bytes": 40, "power_watts": 500.0, "energy_joules": pytest.approx(10.0),
                       "sm_mhz": 1980, "memory_mhz": 3201, "event_reasons": 0, "broken": ""}
    source.restart()
    assert reads(gpu, source, (9.0, 77, 77))[0] == {**rows[1], "pcie_rx_bytes": 0, "pcie_tx_bytes": 0, "energy_joules": 0.0}


def test_a_missed_wrap_breaks_the_traffic_and_nothing_else(fake):
    gpu = Gpu()
    fake(gpu)
    rows = reads(gpu, gpu_source.Gpu(gpu, "gpu0"), (1.0, 0, 0), (1.1, 500, 0), (1.12, 700, 0))
    assert [row["broken"] for row in rows] == [
        "", "pcie: no reading for 100 ms, and the counter can wrap unseen in 68 ms", ""]
    assert [row["energy_joules"] for row in rows] == pytest.approx([0.0, 50.0, 60.0])


def test_a_narrow_link_may_be_polled_less_often(fake):
    gpu = Gpu(nvmlDeviceGetMaxPcieLinkGeneration=3)
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    assert source.link == pcie_bytes_per_second(3, 16)
    assert [row["broken"] for row in reads(gpu, source, (1.0, 0, 0), (1.1, 500, 0))] == ["", ""]


def test_nvlink_counts_kibibytes_in_64_bits(fake):
    gpu = Gpu(fields={(139, LINKS): (ULONGLONG, 2**34), (138, LINKS): (ULONGLONG, 10), 186: (UINT, 1)})
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    source.read_counters(1.0)
    gpu.fields.update({(139, LINKS): (ULONGLONG, 2**34 + 2), (138, LINKS): (ULONGLONG, 15)})
    row = source.read_counters(2.0)
    assert (row["nvlink_rx_bytes"], row["nvlink_tx_bytes"]) == (2048, 5120)
    gpu.fields[138, LINKS] = (ULONGLONG, 0)
    assert source.read_counters(2.02)["broken"] == "nvlink: the counter was reset"


def test_between_edges_only_what_moves_fast_is_read_and_clocks_now_and_then(fake):
    gpu = Gpu(fields={(139, LINKS): (ULONGLONG, 1), (138, LINKS): (ULONGLONG, 1), 198: (UINT, 7), 197: (UINT, 7), 186: (UINT, 1)})
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    rows = [source.readings["fast"](1 + number / 50) for number in range(gpu_source.CLOCKS_EVERY)]
    moving = {"pcie_rx_bytes", "pcie_tx_bytes", "power_watts", "energy_joules", "broken"}
    assert [row.keys() for row in rows[:-1]] == [moving] * (len(rows) - 1)
    assert rows[-1].keys() == moving | {"sm_mhz", "memory_mhz", "event_reasons"}
    assert source.edges["fast"](2.0).keys() == rows[-1].keys() | {"nvlink_rx_bytes", "nvlink_tx_bytes"}
    assert "energy_counter_joules" in source.edges["slow"](2.0) and "energy_counter_joules" not in source.readings["slow"](3.0)


def test_a_gpu_that_is_lost_is_a_row_and_what_it_did_meanwhile_is_not_known(fake):
    gpu = Gpu()
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    reads(gpu, source, (1.0, 0, 0))
    gpu.lost = True
    assert source.read_counters(1.02) == {"broken": "gpu: GPU is lost"}
    assert source.read_state(1.02) == {"energy_counter_joules": None, "memory_used_bytes": None, "busy_percent": None,
                                       "processes": None}
    gpu.lost = False
    rows = reads(gpu, source, (1.04, 900, 0), (1.06, 1_000, 0))
    assert [(row["pcie_rx_bytes"], row["broken"]) for row in rows] == [(0, ""), (100, "")]


def test_a_field_that_stops_to_answer_is_a_loss(fake):
    gpu = Gpu()
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    gpu.fields[198] = (UINT, NOT_SUPPORTED)
    assert source.read_counters(1.0) == {"broken": "gpu: pcie_rx_bytes could not be read"}


def test_what_is_not_supported_is_said_once_and_left_out(fake):
    gpu = Gpu()
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    assert source.not_measured == ["NVLink bytes of gpu0: its driver does not support them"]
    assert source.describe() == {"device": "gpu0", "pcie": "counters", "pcie_bytes_per_second": 63015384615, "nvlink": None,
                                 "power": "instantaneous, integrated", "gpm": False}
    bare = Gpu(fields={}, nvmlDeviceGetPowerUsage=NOT_SUPPORTED)
    source = gpu_source.Gpu(bare, "gpu1")
    assert [reason.partition(":")[0] for reason in source.not_measured] == [
        "PCIe bytes of gpu1", "NVLink bytes of gpu1", "energy of gpu1"]
    assert source.read_counters(1.0) == {"sm_mhz": 1980, "memory_mhz": 3201, "event_reasons": 0, "broken": ""}


def test_an_old_driver_is_sampled_for_20_ms_a_direction(fake):
    clock = iter([0.0, 0.0, 0.02, 0.02, 0.04, 1.0, 1.0, 1.02, 1.02, 1.04]).__next__
    rates = {pynvml.NVML_PCIE_UTIL_RX_BYTES: 1_000_000, pynvml.NVML_PCIE_UTIL_TX_BYTES: 10}
    gpu = Gpu(fields=OLD, nvmlDeviceGetPcieThroughput=rates.get)
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0", clock)
    assert source.pcie == "20 ms samples of throughput" and sorted(source.readings) == ["fast", "sampled", "slow"]
    assert "pcie_rx_bytes" not in source.read_counters(0.0)
    assert source.sample_throughput(0.0) == {"seconds": 0.04, "pcie_rx_bytes": 20_000_000, "pcie_tx_bytes": 200,
                                             "pcie_covered_seconds": pytest.approx(0.02)}
    assert source.sample_throughput(1.0) == {"seconds": 1.04, "pcie_rx_bytes": 1_020_000_000, "pcie_tx_bytes": 10_200,
                                             "pcie_covered_seconds": pytest.approx(0.04)}


def test_an_old_driver_that_fails_breaks_the_traffic(fake):
    gpu = Gpu(fields=OLD, nvmlDeviceGetPcieThroughput=5)
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0", lambda: 1.0)
    gpu.lost = True
    assert source.sample_throughput(1.0) == {"broken": "pcie: the throughput could not be read"}


def test_power_of_an_old_driver_is_its_average(fake):
    gpu = Gpu(fields={198: (UINT, 0), 197: (UINT, 0)})
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    assert (source.power, source.read_counters(1.0)["power_watts"]) == ("averaged by the driver, integrated", 300.0)


def test_the_state_is_read_in_joules_bytes_and_percent(fake):
    gpu = Gpu(nvmlDeviceGetComputeRunningProcesses=processes({1: 5, 2: None}))
    fake(gpu)
    assert gpu_source.Gpu(gpu, "gpu0").read_state(1.0) == {
        "energy_counter_joules": 5000.0, "memory_used_bytes": 2**30, "busy_percent": 90, "processes": 2}


def processes(held):
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in held.items()]


def test_a_gpu_remembers_the_most_that_each_process_held_until_the_next_recording(fake):
    gpu = Gpu()
    fake(gpu)
    source = gpu_source.Gpu(gpu, "gpu0")
    for held in ({1: 5, 2: None}, {1: 9, 3: 4}, {1: 2}):
        gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = processes(held)
        source.read_use(1.0)
    gpu.answers["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
    source.read_use(1.0)
    assert source.held == {1: 9, 3: 4}
    source.restart()
    assert source.held == {}


def test_gpm_answers_from_its_second_sample_on_and_not_too_soon(fake):
    def metrics(asked):
        assert [asked.metrics[place].metricId for place in range(asked.numMetrics)] == list(gpm.METRICS)
        for place in range(asked.numMetrics):
            asked.metrics[place].value = place + 1
        asked.metrics[2].nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        return asked

    gpu = Gpu(nvmlGpmQueryDeviceSupport=type("Support", (), {"isSupportedDevice": 1}))
    samples = iter([pynvml.c_nvmlGpmSample_t(), pynvml.c_nvmlGpmSample_t()])
    filled = []
    fake(gpu, nvmlGpmSampleAlloc=lambda: next(samples), nvmlGpmSampleGet=lambda handle, sample: filled.append(sample),
         nvmlGpmMetricsGet=metrics)
    monitor = gpm.Gpm(gpu)
    assert monitor.supported
    assert monitor.read(1.0) == {}
    assert monitor.read(1.05) == {}
    assert monitor.read(1.5) == {
        "gpm_pcie_rx_bytes_per_second": 2.0**20, "gpm_pcie_tx_bytes_per_second": 2.0**21,
        "gpm_nvlink_tx_bytes_per_second": 2.0**22, "sm_percent": 5.0, "tensor_percent": 6.0, "dram_percent": 7.0}
    assert len(filled) == 2 and filled[0] is not filled[1]


class Sampled:
    """What GPM is asked: samples are numbered as they are filled, and each function may be given something to do first."""

    def __init__(self):
        self.filled = {}
        self.before = {"get": lambda gpu: None, "metrics": lambda: None}

    def get(self, handle, sample):
        self.before["get"](handle)
        self.filled[id(sample)] = max(self.filled.values(), default=0) + 1

    def metrics(self, asked):
        self.before["metrics"]()
        return asked


@pytest.fixture
def sampled(fake, monkeypatch):
    """Script GPM's functions; a metric's answer is how much newer the second of its samples is than the first."""
    script = Sampled()

    class Asked:
        def __init__(self):
            self.metrics = [type("Metric", (), {"nvmlReturn": pynvml.NVML_SUCCESS})() for _ in gpm.METRICS]

        @property
        def sample2(self):
            raise AssertionError("only to be set")

        @sample2.setter
        def sample2(self, sample):
            for metric in self.metrics:
                metric.value = script.filled[id(sample)] - script.filled[id(self.sample1)]

    monkeypatch.setattr(pynvml, "c_nvmlGpmMetricsGet_t", Asked)
    return script


@pytest.fixture
def monitors(fake, sampled):
    """Make GPM monitors, one a GPU, of which `sampled` is asked; handles are the GPUs' numbers."""
    def make(count):
        supported = type("Support", (), {"isSupportedDevice": 1})
        gpus = [Gpu(nvmlGpmQueryDeviceSupport=supported) for _ in range(count)]
        fake(*gpus, nvmlGpmSampleAlloc=pynvml.c_nvmlGpmSample_t, nvmlGpmMetricsGet=sampled.metrics,
             nvmlGpmSampleGet=lambda gpu, sample: sampled.get(gpus.index(gpu), sample))
        return [gpm.Gpm(gpu) for gpu in gpus]

    return make


def newer(answer):
    """By how many fillings an average's second sample was newer than its first; None where there is no average."""
    return answer.get("sm_percent")


def test_each_average_is_from_the_last_sample_to_a_new_one(monitors):
    (monitor,) = monitors(1)
    assert [newer(monitor.read(moment)) for moment in (1.0, 2.0, 3.0, 4.0)] == [None, 1, 1, 1]


@pytest.mark.parametrize("function", ["get", "metrics"])
def test_after_an_answer_that_failed_averages_begin_anew(monitors, sampled, function):
    (monitor,) = monitors(1)
    assert [newer(monitor.read(moment)) for moment in (1.0, 2.0)] == [None, 1]
    good = sampled.before[function]

    def fails(*gpu):
        raise NOT_SUPPORTED

    sampled.before[function] = fails
    assert monitor.read(3.0) == {}
    sampled.before[function] = good
    assert [newer(monitor.read(moment)) for moment in (4.0, 5.0, 6.0)] == [None, 1, 1]


def test_a_fault_of_ours_leaves_gpm_to_the_others(monitors, sampled):
    (monitor,) = monitors(1)
    sampled.before["get"] = lambda gpu: 1 / 0
    with pytest.raises(ZeroDivisionError):
        monitor.read(1.0)
    assert not gpm.ONE_AT_A_TIME.locked()


def test_gpm_is_asked_of_one_gpu_at_a_time(monitors, sampled, monkeypatch):
    monkeypatch.setattr(gpm, "PATIENCE_SECONDS", 30)
    at_once, most, ready = [], [], threading.Barrier(4, timeout=30)

    def asked(*gpu):
        at_once.append(gpu)
        time.sleep(0.01)  # long enough for the others to come in
        most.append(len(at_once))
        at_once.pop()

    def read(monitor):
        ready.wait()
        return monitor.read(1.0), monitor.read(100.0)

    sampled.before = {"get": asked, "metrics": asked}
    made = monitors(4)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(read, made))
    assert most == [1] * 12
    assert [(first, len(second)) for first, second in answers] == [({}, len(gpm.METRICS))] * 4


def test_a_gpu_whose_gpm_hangs_costs_the_others_their_averages_and_no_time(monitors, sampled, monkeypatch):
    monkeypatch.setattr(gpm, "PATIENCE_SECONDS", 0.01)
    asked, release = threading.Event(), threading.Event()
    hanging, other = monitors(2)
    assert [newer(other.read(moment)) for moment in (1.0, 2.0)] == [None, 1]

    def hang(gpu):
        if gpu == 0:
            asked.set()
            release.wait(30)

    sampled.before["get"] = hang
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(hanging.read, 1.0)
        assert asked.wait(30)
        assert other.read(3.0) == {}
        release.set()
        late.result(30)
    assert [newer(other.read(moment)) for moment in (4.0, 5.0)] == [None, 1]  # no average of two rows


def test_the_time_that_another_gpu_took_counts_for_how_far_samples_lie_apart(monitors, monkeypatch):
    (monitor,) = monitors(1)
    monkeypatch.setattr(gpm.time, "monotonic", iter([10.0, 10.08]).__next__)
    assert monitor.read(1.0) == {} and monitor.last == pytest.approx(1.08)
    assert monitor.read(1.15) == {} and monitor.last == pytest.approx(1.08)


def test_the_gpus_are_those_that_cuda_sees_in_its_order(fake):
    gpus = [Gpu("GPU-aaaa"), Gpu("GPU-bbbb"), Gpu("GPU-cccc")]
    nvml_ = fake(*gpus)
    with gpu_source.opened(2, "GPU-cccc,0") as opened:
        assert [(gpu.name, gpu.handle) for gpu in opened] == [("gpu0", gpus[2]), ("gpu1", gpus[0])]
    assert nvml_.calls[-1] == "nvmlShutdown"
    with gpu_source.opened(1, "") as opened:
        assert opened == []
