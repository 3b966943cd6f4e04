"""What the modules of the pipelines study share: the prepared files, the checks, the engine.

A point is a loader, a source and a number of streams. Its candidates are the stages and both ways
to run them all. The driver has prepared in the folder DLBENCH_PIPELINES the sources, their frames
as the reference decodes them, and the exact outputs for its pixels.
"""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from runners.arrays import mapped
from runners.protocol import Task, Unsupported, nothing, processor_name
from runners.reference.inference import errors_of
from runners.studies import candidates
from runners.studies.candidates import Candidate
from runners.studies.pipelines import pixels
from runners.studies.pipelines.flow import STAGES, Flow


class PipelineBench(candidates.Bench):
    """Subclasses name the engine and the loaders, by the names that points have."""

    ENGINE = None
    LOADERS = {}

    @classmethod
    def describe(cls):
        return dict(cls.ENGINE.describe(), device_name=processor_name())

    def __init__(self, task):
        super().__init__(task)
        self.folder = Path(os.environ["DLBENCH_PIPELINES"])
        self.plan = json.loads((self.folder / "plan.json").read_text())
        self.engine = None

    def place(self, array):
        """Return a batch (B, 3, H, W) of NumPy as the engine's ring holds it."""
        return np.ascontiguousarray(array)

    def flow(self, *parts):
        return Flow(*parts)

    def candidates(self, point):
        made = []

        def make(stage):
            if not made:
                try:
                    made.append(self._checked(point))
                except Unsupported as refusal:
                    made.append(refusal)
            if isinstance(made[0], Unsupported):
                raise made[0]
            steps, facts = made[0]
            return Candidate(steps[stage], nothing, point["frames"] * point["streams"],
                             facts[stage]["mean"], errors=written(facts[stage]))

        for stage in STAGES:
            yield stage, lambda stage=stage: make(stage)

    def _checked(self, point):
        """Make a point's flow; return its steps and what its checks found, by stage."""
        plan, name = self.plan, point["source"]
        source = SimpleNamespace(
            files=plan["files"][name], size=tuple(plan["network"]["input_shape"][1:]),
            filter=point["filter"], batch=point["batch"], mean=plan["mean"],
            deviation=plan["deviation"], threads=self.task.threads, device=self.task.device)
        # TensorFlow takes its threads before anything else runs.
        infer = self._inference(point["batch"])
        loader = self.LOADERS[point["loader"]](source)
        exact = {key: np.load(self.folder / f"{name}-{key}.npy") for key in (
            "decoded", f"{point['filter']}-inputs", f"{point['filter']}-outputs")}
        decoded, inputs, outputs = exact.values()
        inputs = [self.place(batch) for batch in np.split(inputs, len(inputs) // point["batch"])]
        flow = self.flow(loader, infer, inputs, point["streams"])
        steps = {stage: getattr(flow, "infer_alone" if stage == "infer" else stage)
                 for stage in STAGES}
        facts = pixels_of(flow, source, decoded)
        for stage in ("infer", "in_turn", "overlapped"):
            facts[stage] = outputs_of(flow, steps[stage], outputs)
        return steps, facts

    def _inference(self, batch):
        """Return a function that answers a batch, made ready with the network's weights."""
        if self.engine is None:
            network = self.plan["network"]
            task = Task(network, batch, self.task.device, self.task.threads)
            self.engine = self.ENGINE(task, mapped(self.plan["weights"]))
            shape = [1, batch, *network["input_shape"]]
            self.engine.feed(np.zeros(shape, np.float32), None, "host")
        engine, rows = self.engine, list(range(batch))

        def infer(given):
            engine.ring, engine.position = [given], 0
            engine.step()
            engine.synchronize()
            return lambda: np.array(engine.output(rows))

        return infer


def pixels_of(flow, source, exact):
    """Return what is found of the pixels that each stage leaves, by stage."""
    loader = flow.loader
    decoded, resized = (np.concatenate([loader.pixels(frames) for frames in batches])
                        for batches in (flow.decoded, flow.resized))
    floats = np.concatenate([loader.floats(batch) for batch in flow.normalised])
    found = {
        "decode": pixels.compare_decoded(decoded, exact),
        "resize": pixels.compare_resized(resized, decoded, source.size, source.filter),
        "normalise": pixels.compare_normalised(floats, resized, source.mean, source.deviation)}
    found["decode"].setdefault("mean", 255.0)
    found["load"] = found["normalise"]
    return found


def outputs_of(flow, step, exact):
    """Return how far the answers to all frames are from the exact ones, over all streams.

    `argmax` counts the frames whose largest output is another one. The unit of `mean` is that of
    the proof of inference; it is the largest of all frames.
    """
    found = flow.answers(step)
    if {answers.shape for answers in found} != {exact.shape}:
        return {"mean": float("inf"), "argmax": len(exact), "frames": min(map(len, found))}
    return {"mean": float(np.max([errors_of(answers, exact).max() for answers in found])),
            "argmax": int(sum((answers.argmax(1) != exact.argmax(1)).sum() for answers in found)),
            "frames": len(exact)}


def written(facts):
    return " ".join(f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
                    for name, value in facts.items())
