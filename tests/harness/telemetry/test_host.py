"""The host's energy and use, from a made-up /sys."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.telemetry.host import Host


@pytest.fixture
def powercap(tmp_path):
    """Write a RAPL zone: `powercap("intel-rapl:0", "package-0", 5)`; returns the root."""

    def write(zone, name, microjoules, wraps_at=262_143_328_850) -> Path:
        folder = tmp_path / "sys/class/powercap" / zone
        folder.mkdir(parents=True, exist_ok=True)
        for file, value in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", wraps_at)):
            (folder / file).write_text(f"{value}\n")
        return tmp_path

    return write


def test_packages_and_their_memory_are_added_and_nothing_twice(powercap):
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:1", "package-1"), ("intel-rapl:0:0", "core"),
                       ("intel-rapl:0:1", "dram"), ("intel-rapl:2", "psys")):
        root = powercap(zone, name, 1_000_000)
    host = Host(root)
    assert host.not_measured == []
    assert host.describe() == {"device": "host", "energy": ["package-0", "dram", "package-1"]}
    assert host.read_energy(1.0) == {"energy_joules": 0.0}
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:1", "dram"), ("intel-rapl:2", "psys")):
        powercap(zone, name, 3_500_000)
    assert host.read_energy(2.0) == {"energy_joules": 5.0}
    host.restart()
    assert host.read_energy(3.0) == {"energy_joules": 0.0}


def test_energy_wraps_where_its_zone_says(powercap):
    host = Host(powercap("intel-rapl:0", "package-0", 9_000_000, wraps_at=10_000_000))
    host.read_energy(1.0)
    powercap("intel-rapl:0", "package-0", 1_000_000, wraps_at=10_000_000)
    assert host.read_energy(2.0) == {"energy_joules": 2.0}


def test_a_zone_that_stops_to_answer_is_a_broken_row(powercap):
    root = powercap("intel-rapl:0", "package-0", 5)
    host = Host(root)
    powercap("intel-rapl:0", "package-0", "unreadable")
    assert host.read_energy(1.0)["broken"].startswith("energy: intel-rapl:0: invalid literal")


def test_without_rapl_use_is_read_all_the_same(tmp_path):
    host = Host(tmp_path)
    assert host.not_measured == ["energy of the processors: this machine shows no RAPL counters"]
    assert list(host.readings) == ["slow", "own"]
    used = host.read_use(1.0)
    assert all(used[name] > 0 for name in ("cpu_seconds", "driver_seconds", "memory_used_bytes"))


def test_interfaces_but_the_loopback_and_ports_of_infiniband_are_added(tmp_path):
    for file, value in {"class/net/eth0/statistics/tx_bytes": 100, "class/net/ib0/statistics/tx_bytes": 20,
                        "class/net/lo/statistics/tx_bytes": 9999, "class/net/eth0/statistics/rx_bytes": 7,
                        "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": 1000,
                        "class/infiniband/mlx5_1/ports/1/counters/port_xmit_data": 500}.items():
        (tmp_path / "sys" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / file).write_text(f"{value}\n")
    host = Host(tmp_path)
    assert host.read_network() == {"nic_tx_bytes": 120, "nic_rx_bytes": 7, "infiniband_tx_bytes": 6000}
    (tmp_path / "sys/class/net/eth0/statistics/tx_bytes").write_text("broken\n")
    assert host.read_network()["nic_tx_bytes"] == 20


def test_rapl_that_only_root_may_read_is_said_with_its_remedy(powercap, monkeypatch):
    root = powercap("intel-rapl:0", "package-0", 5)
    read = Path.read_text

    def refuse(path, *arguments, **options):
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert Host(root).not_measured == [
        "energy of the processors: only root may read RAPL here (sudo chmod a+r /sys/class/powercap/*/energy_uj)"]


def test_processes_that_this_one_started_are_its_own_and_others_are_not(tmp_path):
    host = Host(tmp_path)
    before = host.read_shares(1.0)
    with subprocess.Popen([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"],
                          stdout=subprocess.PIPE) as started:
        started.stdout.readline()
        during = host.read_shares(2.0)
        started.kill()
    assert during["own_seconds"] - before["own_seconds"] >= 0.4
    assert during["cpu_seconds"] - before["cpu_seconds"] >= during["own_seconds"] - before["own_seconds"] - 0.1
