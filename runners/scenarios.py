"""MLPerf's scenarios by its own LoadGen, which asks an engine for samples in the worker's process.

LoadGen asks from threads of its own. The engine computes in the thread of the command, where
frameworks have their devices. A call answers the samples that wait, up to a batch.
"""

import collections
import os
import queue
import shutil
import tempfile
import threading
import time

import numpy as np

from runners.arrays import save
from runners.protocol import Unsupported

# Our names, and LoadGen's.
SCENARIOS = {"multistream": "MultiStream", "offline": "Offline", "server": "Server"}
LOGS = ("mlperf_log_summary.txt", "mlperf_log_detail.txt")
# Calls may be faster than when they were timed, and LoadGen wants enough samples for its time.
MORE = 1.5


def load():
    """Import LoadGen, or raise `Unsupported` with the name of its package."""
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise Unsupported("MLPerf's scenarios need the package mlcommons-loadgen in the "
                          f"framework's environment: {error}") from None
    return mlperf_loadgen


def play(engine, wanted, out, times=""):
    """Let LoadGen ask an engine; copy its logs to `out`. Returns calls, samples, start and stop.

    `wanted` has the scenario, the samples of a call (batch), the least seconds, and the rate in
    samples a second. For a server it has the latency in seconds, the share of samples that must
    keep it, the fewest samples, and the seed of their arrivals too. `times` is where samples'
    arrivals and latencies are saved (2, n), as float32 seconds by the worker's clock.
    """
    loadgen, asked = load(), queue.Queue()
    settings = settings_of(loadgen, wanted)
    samples = 1024 * wanted["batch"]

    def issue(query):
        now = time.monotonic()
        asked.put([(now, sample.id) for sample in query])

    system = loadgen.ConstructSUT(issue, nothing)
    library = loadgen.ConstructQSL(samples, samples, nothing, nothing)
    engine.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        test = threading.Thread(target=run_test, args=(
            loadgen, (system, library, settings, logs_of(loadgen, folder)), asked))
        start = time.monotonic()
        test.start()
        calls, arrivals, latencies = answer(loadgen, engine, asked, wanted["batch"])
        stop = time.monotonic()
        test.join()
        # They must not outlive the test.
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
        with open(out, "wb") as copied:
            for name in LOGS:
                with open(os.path.join(folder, name), "rb") as log:
                    shutil.copyfileobj(log, copied)
    if times:
        save(times, {"times": np.array([np.array(arrivals) - start, latencies], np.float32)})
    return calls, len(arrivals), start, stop


def answer(loadgen, engine, asked, batch):
    """Call the engine until the test has ended. Returns calls, and samples' arrivals, latencies."""
    calls, arrivals, latencies = 0, [], []
    for samples in batches_of(asked, batch):
        engine.step()
        engine.synchronize()
        calls, now = calls + 1, time.monotonic()
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(each, 0, 0)
                                      for _, each in samples])
        arrivals.extend(came for came, _ in samples)
        latencies.extend(now - came for came, _ in samples)
    return calls, arrivals, latencies


def batches_of(asked, batch):
    """Yield the samples of each call: those that wait, up to a batch, in their order."""
    waiting = collections.deque()
    while True:
        while not waiting or (len(waiting) < batch and not asked.empty()):
            query = asked.get()
            # LoadGen ends when each of its samples is answered.
            if query is None:
                return
            waiting.extend(query)
        yield [waiting.popleft() for _ in range(min(batch, len(waiting)))]


def run_test(loadgen, arguments, asked):
    try:
        loadgen.StartTestWithLogSettings(*arguments)
    finally:
        asked.put(None)


def settings_of(loadgen, wanted):
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, SCENARIOS[wanted["scenario"]])
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.min_duration_ms, settings.min_query_count = int(1000 * wanted["seconds"]), 1
    settings.multi_stream_samples_per_query = wanted["batch"]
    settings.multi_stream_expected_latency_ns = int(1e9 * wanted["batch"] / wanted["rate"] / MORE)
    settings.offline_expected_qps = MORE * wanted["rate"]
    if wanted["scenario"] == "server":
        settings.server_target_qps = wanted["rate"]
        settings.server_target_latency_ns = int(1e9 * wanted["latency_seconds"])
        settings.server_target_latency_percentile = wanted["share"]
        settings.min_query_count = wanted["requests"]
        settings.schedule_rng_seed = wanted["seed"]
    return settings


def logs_of(loadgen, folder):
    logs, output = loadgen.LogSettings(), loadgen.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout = folder, False
    logs.log_output, logs.enable_trace = output, False
    return logs


def nothing(*_):
    """LoadGen's samples lie where the engine has its batches."""
