"""MLPerf's scenarios by its own LoadGen, which asks an engine for samples in the worker's process.

LoadGen asks from threads of its own. The engine computes in the thread of the command, where
frameworks have their devices; each call answers a batch of samples.
"""

import os
import queue
import shutil
import tempfile
import threading
import time

from runners.protocol import Unsupported

# Our names, and LoadGen's.
SCENARIOS = {"multistream": "MultiStream", "offline": "Offline"}
SUMMARY = "mlperf_log_summary.txt"


def load():
    """Import LoadGen, or raise `Unsupported` with the name of its package."""
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise Unsupported("MLPerf's scenarios need the package mlcommons-loadgen in the "
                          f"framework's environment: {error}") from None
    return mlperf_loadgen


def play(engine, wanted, out):
    """Let LoadGen ask an engine; copy its summary to `out`. Returns calls, start and stop.

    `wanted` has the scenario, the samples of a call (batch), the least seconds, and the expected
    rate in samples a second.
    """
    loadgen, asked = load(), queue.Queue()
    settings = settings_of(loadgen, wanted)
    samples = 1024 * wanted["batch"]
    system = loadgen.ConstructSUT(lambda query: asked.put([sample.id for sample in query]), nothing)
    library = loadgen.ConstructQSL(samples, samples, nothing, nothing)
    engine.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        test = threading.Thread(target=run_test, args=(
            loadgen, (system, library, settings, logs_of(loadgen, folder)), asked))
        start = time.monotonic()
        test.start()
        calls = answer(loadgen, engine, asked, wanted["batch"])
        stop = time.monotonic()
        test.join()
        # They must not outlive the test.
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
        shutil.copyfile(os.path.join(folder, SUMMARY), out)
    return calls, start, stop


def answer(loadgen, engine, asked, batch):
    """Call the engine for each batch of samples until the test has ended; return the calls."""
    calls = 0
    for ids in iter(asked.get, None):
        for first in range(0, len(ids), batch):
            engine.step()
            engine.synchronize()
            calls += 1
            loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(each, 0, 0)
                                          for each in ids[first:first + batch]])
    return calls


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
    settings.offline_expected_qps = wanted["rate"]
    return settings


def logs_of(loadgen, folder):
    logs, output = loadgen.LogSettings(), loadgen.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout = folder, False
    logs.log_output, logs.enable_trace = output, False
    return logs


def nothing(*_):
    """LoadGen's samples lie where the engine has its batches."""
