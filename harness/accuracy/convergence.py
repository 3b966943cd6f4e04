"""The epochs that kept reference runs needed: MLPerf's reference convergence points.

`scripts/derive_epochs.py` trains a suite over many seeds and keeps the epochs of each seed here,
with a hash of what they depend on. A campaign records what is kept for its settings. Whether a row
converges too fast is decided in `analysis.trials.accuracy`, from the records alone.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import networks
from harness.data import arrays, divided
from harness.errors import WrongUse
from harness.plan.parts import Until
from harness.plan.planner import Trial

KEPT = Path(__file__).parent / "convergence"
DERIVE = "scripts/derive_epochs.py"
# MLPerf asks for twice as many reference runs as a submission has; suites have five seeds.
LEAST_SEEDS = 10
# What its weights and batches are drawn from, beside the suite's seed.
DRAWN_SEED = 0

# Keys of `until` that change no epoch.
NO_MATTER = {"seeds", "at_most_epochs", "keep_weights"}

Page = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What decides how many epochs a correct framework needs."""

    network: networks.Network
    batch: int
    precision: str
    data: str
    until: Until

    @property
    def words(self) -> Page:
        """The keys by which a row finds its reference in campaign.json."""
        return {"network": self.network.name, "batch": self.batch, "precision": self.precision,
                "data": self.data}

    @property
    def file_name(self) -> str:
        return (f"{self.network.name}-b{self.batch}-{self.precision}-{self.data}-"
                f"{self.until.target:g}.json")

    @property
    def depends_on(self) -> str:
        """Return a hash of the network, the data, the batches, the recipe and the target.

        Weights are hashed by their size alone: their last bits may depend on the processor.
        """
        described = self.network.to_json()
        for key in ("title", "batches", "data_set"):
            described.pop(key)
        recipe = self.until.model_dump(mode="json", exclude=NO_MATTER)
        drawn = arrays.draw_weights(self.network, DRAWN_SEED)
        sizes = {name: f"{np.sqrt(np.mean(np.square(each))):.3g}" for name, each in drawn.items()}
        parts = divided.divide(self.data, self.network)
        order = parts.epoch(self.batch, DRAWN_SEED, 1, self.until.augmentation != "none")["targets"]
        digest = hashlib.sha256(json.dumps(
            [described, recipe, self.batch, self.precision, sizes], sort_keys=True).encode())
        for array in (*parts.training.images, *parts.test.images, order):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


def recorded(trials: Iterable[Trial], until: Until | None, folder: Path) -> list[Page]:
    """Return what campaign.json says of the reference epochs of each of the trials' settings.

    An entry has `epochs` by framework and seed, or a `reason` why it has none.
    """
    if until is None:
        return []
    found = {}
    for trial in trials:
        own = Settings(networks.get(trial.network), trial.global_batch, trial.precision, trial.data,
                       until)
        found[own.file_name] = own
    return [{**own.words, **_read(folder, own)} for own in found.values()]


def keep(settings: Settings, data_set: str, epochs: Mapping[str, Mapping[int, int]],
         folder: Path) -> Path:
    """Write the epochs of each framework's seeds into a folder. Raises WrongUse if they are few."""
    for framework, seeds in epochs.items():
        if len(seeds) < LEAST_SEEDS:
            raise WrongUse(f"{framework}: {len(seeds)} seeds reached the target; a reference needs "
                           f"{LEAST_SEEDS} or more: write until.seeds={2 * LEAST_SEEDS}")
    page = {**settings.words, "target": settings.until.target, "data_set": data_set,
            "at_most_epochs": settings.until.at_most_epochs, "depends_on": settings.depends_on,
            "epochs": {framework: {str(seed): count for seed, count in sorted(seeds.items())}
                       for framework, seeds in sorted(epochs.items())}}
    file = folder / settings.file_name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")
    return file


def _read(folder: Path, settings: Settings) -> Page:
    file = folder / settings.file_name
    if not file.is_file():
        return {"reason": "no reference run is kept for these settings"}
    try:
        page = json.loads(file.read_text(encoding="utf-8"))
        kept = {key: page[key] for key in ("at_most_epochs", "epochs")}
        depends_on = page["depends_on"]
    except (ValueError, KeyError, TypeError) as error:
        raise WrongUse(f"{file}: not a file of reference epochs ({error!r}); restore it, or write "
                       f"it again with {DERIVE}") from None
    if depends_on != settings.depends_on:
        return {"reason": f"the reference run kept in {file.name} had another network, data set or "
                          "schedule"}
    return kept
