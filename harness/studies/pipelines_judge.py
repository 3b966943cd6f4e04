"""Prepares what pipelines are compared with, and judges what their workers found.

The driver writes the files, decodes them with the reference, and asks for exact outputs. Each
worker compares all frames with them and answers how far off they are; what is allowed stands here.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.campaign.session import Session
from harness.data import arrays, formats
from harness.inference.judge import FACTOR, FLOOR, distances, unit_of
from harness.inference.reference import Asked
from harness.studies import media
from harness.studies.pipelines import Grid, network_of
from harness.studies.study import Answers, Point
from harness.workers.failures import Failed
from runners.studies.pipelines import pixels

# Levels by which decoded frames may be off on average, in the worst frame, and a single pixel.
# Decoders differ in how they round and enlarge chroma.
DECODED = {"mean": 0.5, "max": 64.0}
# The same, after the filter that a loader declares: some round twice.
RESIZED = {"mean": 0.5, "max": 2.0}
# float32, of values of about 1.
NORMALISED = 1e-5
# Frames with noise that tells what pixels may do to outputs.
NOISY, SEED = 8, 7


@dataclass
class Preparation:
    """Makes what the workers need in `folder`, and then judges what they found."""

    grid: Grid
    points: Sequence[Point]
    folder: Path
    # Limits of the outputs: from the reference's pixels, and from each source's files.
    engine: float = math.nan
    whole: dict[str, float] = field(default_factory=dict)

    def prepare(self, session: Session) -> dict[str, Any]:
        """Write the sources, their decoded frames, and inputs and exact outputs of each filter."""
        network, reference = network_of(self.grid.network), session.references
        assert reference
        asked = Asked(network, 1, "fp32")
        self.engine = FACTOR * reference.rounding(asked) + FLOOR
        files, described = {}, {}
        for source in dict.fromkeys(point["source"] for point in self.points):
            files[source] = media.write(source, self.folder / source, self.grid.frames,
                                        self.grid.size)
            frames, described[source] = media.decoded(files[source]), media.described(files[source])
            np.save(self.folder / f"{source}-decoded.npy", frames)
            filters = {point["filter"] for point in self.points if point["source"] == source}
            for name in sorted(filters):
                levels = pixels.resized(frames, network.input_shape[1:], name)
                inputs = inputs_of(levels)
                exact = self._outputs(session, inputs, f"{source}-{name}")
                np.save(self.folder / f"{source}-{name}-inputs.npy", inputs)
                np.save(self.folder / f"{source}-{name}-outputs.npy", exact)
            self.whole[source] = self.engine + FACTOR * self._moved(session, source, levels, exact)
        self._write_plan(files, reference.trained(network))
        return {"sources": described, "reference": media.versions(),
                "limits": {"engine": self.engine, **self.whole}}

    def faults(self, point: Point, answers: Answers) -> dict[str, str]:
        """Refuse all candidates of a loader if one of its stages is wrong. Raises Failed."""
        for stage, answer in answers.items():
            if answer["status"] != "ok":
                continue
            errors = answer.get("errors") or ""
            try:
                reason = self._fault(point, stage, errors)
            except (KeyError, ValueError):
                raise Failed("protocol", f"answer to 'place': {stage}: errors: came {errors!r}"
                             ) from None
            if reason:
                return dict.fromkeys(answers, f"{stage}: {reason}")
        return {}

    def _fault(self, point: Point, stage: str, errors: str) -> str:
        facts = {key: float(value) for key, _, value in (
            word.partition("=") for word in errors.split())}
        if stage == "decode":
            return fault_of_decoded(facts, point["frames"])
        if stage == "resize":
            return fault_of_resized(facts, point["filter"])
        if stage in ("normalise", "load"):
            return fault_of_normalised(facts)
        limit = self.engine if stage == "infer" else self.whole[point["source"]]
        if facts["mean"] <= limit:
            return ""
        return (f"answers are off by {facts['mean']:.2g} of how they differ between frames, "
                f"{limit:.2g} is allowed; {facts['argmax']:g} of "
                f"{point['frames'] * point['streams']} have another largest output")

    def _outputs(self, session: Session, inputs: np.ndarray, name: str) -> np.ndarray:
        """Return the exact outputs (N, K) for `inputs` (N, C, H, W)."""
        assert session.references
        file = self.folder / f"asked-{name}.npz"
        arrays.save_batches(file, inputs[:, None], np.zeros((len(inputs), 1), np.int32))
        asked = Asked(network_of(self.grid.network), 1, "fp32")
        return np.concatenate(session.references.outputs(asked, file))

    def _moved(self, session: Session, source: str, levels: np.ndarray, exact: np.ndarray) -> float:
        """Return how far outputs are off if each pixel is off by what decoding may be."""
        generator = np.random.default_rng(SEED)
        few = levels[:NOISY]
        moved = few + DECODED["mean"] * generator.choice([-1.0, 1.0], few.shape)
        found = self._outputs(session, inputs_of(moved), f"{source}-moved")
        return float(distances(found, exact[:NOISY]).max() / unit_of(exact))

    def _write_plan(self, files: Mapping[str, Sequence[Path]], weights: Path) -> None:
        plan = {"network": network_of(self.grid.network).to_json(), "weights": str(weights),
                "mean": formats.CIFAR_MEAN.tolist(),
                "deviation": formats.CIFAR_DEVIATION.tolist(),
                "files": {source: [str(file) for file in each] for source, each in files.items()}}
        (self.folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")


def inputs_of(levels: np.ndarray) -> np.ndarray:
    """Return what the network takes for the pixels of frames (N, H, W, 3)."""
    found = pixels.normalised(levels, formats.CIFAR_MEAN, formats.CIFAR_DEVIATION)
    return np.ascontiguousarray(found, np.float32)


def fault_of_decoded(facts: Mapping[str, float], frames: int) -> str:
    """Say what is wrong with decoded frames; "" if nothing is."""
    if facts.get("swapped", math.inf) <= DECODED["mean"] < facts["mean"]:
        return "red and blue are exchanged"
    if facts["place"] >= 0:
        lost = f", and {facts['frames']:g} of {frames} came" if facts["frames"] != frames else ""
        return f"frame {facts['place']:g} shows the reference's {facts['nearest']:g}{lost}"
    if facts["frames"] != frames:
        return f"{facts['frames']:g} of {frames} frames came"
    return _off(facts, DECODED, "the reference's")


def fault_of_resized(facts: Mapping[str, float], name: str) -> str:
    """Say what is wrong with resized frames; "" if nothing is."""
    reason = _off(facts, RESIZED, f"those of the filter that it declares ({name})")
    other = min(pixels.FILTERS, key=lambda each: facts[each])
    if reason and facts[other] <= RESIZED["mean"] and other != name:
        return f"{reason}; they are those of {other} (mean {facts[other]:.2g})"
    return reason


def fault_of_normalised(facts: Mapping[str, float]) -> str:
    """Say what is wrong with normalised values; "" if nothing is."""
    if facts["mean"] <= NORMALISED:
        return ""
    twice = "; they are normalised twice" if facts["twice"] <= NORMALISED else ""
    return f"values are off by up to {facts['mean']:.2g}, {NORMALISED:.0e} is allowed{twice}"


def _off(facts: Mapping[str, float], allowed: Mapping[str, float], what: str) -> str:
    # Not `>`, because a NaN is wrong too.
    beyond = [f"{name} {facts[name]:.3g} (allowed {limit:g})" for name, limit in allowed.items()
              if not facts[name] <= limit]
    return f"pixels are off {what} by {', '.join(beyond)} levels" if beyond else ""
