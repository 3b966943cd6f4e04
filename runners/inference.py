"""Inference: what an engine offers beside a runner, and the commands and the clock for it.

An engine runs a trained network: batch norm reads running statistics, dropout is off. The driver
gives weights and statistics as a file, and asks for outputs of calls that it chooses.
"""

import time

import numpy as np

from runners import protocol, scenarios
from runners.arrays import mapped, save
from runners.protocol import Task
from runners.session import Session

STATISTICS = ("mean", "variance")
# The last part of the names of arrays that are not weights.
BESIDE = (*STATISTICS, "quantised")


class Engine(protocol.Runner):
    """What an engine offers: `feed`, `step` and `synchronize` of a runner, and these methods.

    A step is one call: the next batch of the ring in, its outputs out. With the residence "host"
    inputs come from host memory and outputs go there, within the call. `model_bytes` is the size of
    the file that the engine reads, where it reads one.
    """

    model_bytes = 0

    def __init__(self, task, arrays):
        """Make the network ready with these weights and running statistics, by full name.

        Raises `Unsupported` or `Different`, as a runner does.
        """

    @staticmethod
    def session(engine_class, rank=0):
        """Return the commands for an engine."""
        return Inference(engine_class, rank)

    def parameter_count(self):
        """Return how many trained numbers the engine holds, without running statistics."""

    def arithmetic(self):
        """Return the precision that the engine says it computes in; "" if it does not say."""
        return ""

    def output(self, rows):
        """Return these rows of the last call's outputs, seen as (B, K) or (B T, K), as float32.

        All of them may not fit into the host's memory, so a GPU's are chosen there.
        """


class Inference(Session):
    """The commands of inference. Those of training, which an engine lacks, are refused."""

    @staticmethod
    def timed_run(engine, calls):
        """Wait for each call's outputs, as when calls are timed."""
        moments = timed_calls(engine, calls)
        return moments[0], moments[-1]

    def build(self, weights, **task):
        self.rest()
        self.task = Task(rank=self.rank, **task)
        self.runner = self.runner_class(self.task, mapped(weights))
        return {"parameters": int(self.runner.parameter_count()),
                "settings": list(self.runner.settings), "arithmetic": self.runner.arithmetic(),
                "model_bytes": self.runner.model_bytes}

    def infer(self, calls, out):
        """Time `calls` calls, one after another, and save the seconds of each as float32."""
        moments = timed_calls(self.runner, calls)
        save(out, {"seconds": np.diff(moments).astype(np.float32)})
        return {"steps": calls, "start": moments[0], "stop": moments[-1],
                "peak_memory_bytes": self._peak_memory()}

    def evaluate(self, inputs, out):
        """Save the outputs for the inputs of a file (n, ...), as float32, in calls of one batch.

        The engine's ring is another one afterwards.
        """
        samples, batch = mapped(inputs)["inputs"], self.task.batch
        # A last batch is filled with the first sample: an engine may have one shape.
        whole = np.concatenate([samples, np.repeat(samples[:1], -len(samples) % batch, 0)])
        ring = whole.reshape((-1, batch) + samples.shape[1:])
        self.runner.feed(ring, np.zeros(ring.shape[:2], np.int32), "host")
        found = []
        for _ in ring:
            self.runner.step()
            self.runner.synchronize()
            found.append(np.array(self.runner.output(list(range(batch))), np.float32))
        save(out, {"outputs": np.concatenate(found)[:len(samples)]})
        return {}

    def scenario(self, wanted, out, times=""):
        """Play a scenario of MLPerf; save LoadGen's logs as text, and the samples' times."""
        calls, samples, start, stop = scenarios.play(self.runner, wanted, out, times)
        return {"steps": calls, "samples": samples, "start": start, "stop": stop,
                "peak_memory_bytes": self._peak_memory()}

    def output(self, rows, out):
        """Save these rows of the last call's outputs."""
        save(out, {"outputs": np.asarray(self.runner.output(rows), np.float32)})
        return {}


def timed_calls(engine, calls, clock=time.monotonic):
    """Return the moments before the first call and after each, when its outputs are ready."""
    moments = [0.0] * (calls + 1)
    engine.synchronize()
    moments[0] = clock()
    for call in range(1, calls + 1):
        engine.step()
        engine.synchronize()
        moments[call] = clock()
    return moments


def flat(outputs):
    """Return outputs as rows: (B, K) or (B T, K)."""
    return outputs.reshape(-1, outputs.shape[-1])


def trained(arrays):
    """Return the weights among arrays that hold running statistics and scales too."""
    return {name: array for name, array in arrays.items()
            if name.rpartition(".")[2] not in BESIDE}
