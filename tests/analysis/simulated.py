"""A scaling campaign and a sweep of links from the models themselves, with noise: what was put in must come out again."""

import math
import zlib

import numpy as np
import pandas as pd

import networks
from analysis.aggregation import overlap, times
from analysis.aggregation.links import Fit
from analysis.strategies.facts import Work
from networks import work

LINKS = {  # latency in seconds, bytes a second
    "send": (20e-6, 40e9), "shift": (25e-6, 38e9), "pair": (22e-6, 39e9), "fan_in": (30e-6, 42e9), "fan_out": (30e-6, 41e9),
    "all_reduce": (60e-6, 30e9), "to_host": (40e-6, 25e9), "from_host": (10e-6, 26e9), "host_sum_one": (50e-6, 5e9),
    "host_sum_all": (70e-6, 40e9), "device_sum": (4e-6, 900e9), "device_copy": (3e-6, 1300e9),
    "swap": (35e-6, 36e9), "bit_pack": (150e-6, 90e9), "bit_unpack": (40e-6, 300e9),
}
PHASES = {"fcn5": (0.004, 0.008, 0.001), "resnet56": (0.010, 0.020, 0.002)}  # forward, backward, update
SIZES = [2**power for power in range(12, 29, 2)]


def truth(link, devices=2, wire="default"):
    """The fit that a sweep without noise has."""
    latency, bandwidth = LINKS[link]
    slow = 10 if wire == "p2p_off" else 1
    return Fit(wire, devices, link, latency * slow, latency * slow, latency * slow, bandwidth / slow, bandwidth / slow,
               bandwidth / slow, 0.0, 0.0, 0.0, 0.0, 2.0**28, (0.0, 0.0, 0.0), 0.0, 2.0)


def truths(devices=2, wire="default"):
    return {link: truth(link, devices, wire) for link in LINKS}


def sweep(noise=0.02, devices=(2,), wires=("default",), processes=3):
    """The rows of links.csv, each process as much slower or faster as `noise` says."""
    generator, rows = np.random.default_rng(5), []
    for wire in wires:
        for count in devices:
            for link in LINKS:
                for process in range(processes):
                    own = math.exp(noise * generator.standard_normal())
                    told = {"wire": wire, "devices": count, "process": process, "link": link, "status": "ok", "reason": ""}
                    for size in SIZES:
                        seconds = 10 * truth(link, count, wire).seconds(1, size) * own
                        rows += [{**told, "window": window, "bytes": size, "steps": 10, "start": 0.0, "stop": seconds,
                                  "seconds": seconds} for window in range(3)]
    return pd.DataFrame(rows)


def step_seconds(network, strategy, devices, isolated=1.0):
    """Seconds of the step and of its parts, by variant; `isolated` makes the aggregation so many times as long as its model."""
    forward, backward, update = PHASES[network]
    size = work.parameter_bytes(networks.get(network))
    if devices == 1:
        alone = exposed = 0.0
    elif strategy == "ddp":
        sent = overlap.gradients(networks.get(network), backward, "bucket")
        fits = truths(devices)
        found = overlap.overlap(sent, backward, lambda part: times.predict(strategy, Work(part, devices), fits).value)
        alone, exposed = isolated * found.aggregation_seconds, found.exposed_seconds
    else:
        alone = exposed = isolated * times.predict(strategy, Work(size, devices), truths(devices)).value
    return {"F": forward, "FB": forward + backward, "FBA": forward + backward + exposed,
            "FBAU": forward + backward + exposed + update, "A": alone}


def add_scaling(made, network, counts=(1, 2, 4), strategies=("ddp",), framework="pytorch", **changes):
    """Add a trial for each number of devices and strategy, with phases; `changes` are of `Records.add_trial`. Returns names."""
    isolated, slower = changes.pop("isolated", 1.0), changes.pop("slower", 1.0)
    batch, first = changes.pop("batch", 64), {"fcn5": (512, 0.110), "resnet56": (16, 0.190)}[network]
    names = []
    for devices in counts:
        for strategy in strategies if devices > 1 else ("",):
            each = step_seconds(network, strategy, devices, isolated)
            usual = first[1] * batch / first[0]
            names.append(made.add_trial(framework, network, batch, devices=devices, strategy=strategy, global_batch=batch * devices,
                                        slower=slower * each["FBAU"] / usual, **changes))
            _add_phases(made, names[-1], each)
    return names


def _add_phases(made, trial, seconds):
    for process in {row["process"] for row in made.processes_of(trial)}:
        generator = np.random.default_rng([zlib.crc32(trial.encode()), process])
        own = math.exp(0.03 * generator.standard_normal())
        for window in range(4):
            for variant, each in seconds.items():
                if each > 0:
                    taken = 10 * each * own * math.exp(0.002 * generator.standard_normal())
                    made.phases.append({"trial": trial, "process": process, "variant": variant, "window": window, "steps": 10,
                                        "start": 0.0, "stop": taken, "seconds": taken})
