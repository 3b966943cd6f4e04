"""Keeps the epochs that a suite's target takes over many seeds, as the reference of later rows.

Run it from the checkout after a change of an accuracy suite, its network or its data. It trains the
suite in one or more frameworks, or takes a campaign of it, and writes harness/accuracy/convergence.
A row of the same settings that needs fewer epochs than chance explains is then refused.

    .venv/bin/python scripts/derive_epochs.py configs/accuracy.yaml --frameworks pytorch,jax
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import networks  # noqa: E402
from analysis.records import reader  # noqa: E402
from analysis.records.reader import Campaign  # noqa: E402
from analysis.records.text import BadRecords  # noqa: E402
from analysis.trials import accuracy, summary  # noqa: E402
from harness.accuracy import convergence  # noqa: E402
from harness.accuracy.convergence import Settings  # noqa: E402
from harness.errors import WrongUse  # noqa: E402
from harness.plan.parts import Until  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("suite", type=Path, help="a suite with until, or a campaign's folder")
    parser.add_argument("--frameworks", default="pytorch")
    parser.add_argument("--seeds", type=int, default=20)
    asked = parser.parse_args()
    try:
        if asked.suite.is_dir():
            return _keep(reader.read(asked.suite))
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "reference"
            code = subprocess.run([
                sys.executable, "-m", "harness.start", "run", str(asked.suite), "trace=false",
                f"frameworks={asked.frameworks}", f"until.seeds={asked.seeds}", "--out", str(out),
            ], cwd=ROOT).returncode
            return _keep(reader.read(out)) if code == 0 else code
    except (WrongUse, BadRecords) as error:
        print(f"derive_epochs: {error}", file=sys.stderr)
        return 2


def _keep(campaign: Campaign) -> int:
    """Write a file for each of the campaign's settings. Raises WrongUse if a row is not proven."""
    until = Until.model_validate(reader.target_of(campaign))
    rows = summary.summarise(campaign).set_index("trial")
    for name, row in rows.iterrows():
        if row["verified"] != "yes":
            raise WrongUse(f"{name}: no reference: {row['reason']}")
        if row["processes"] < row["processes_planned"]:
            raise WrongUse(f"{name}: no reference: only {row['processes']} of "
                           f"{row['processes_planned']} seeds reached the target; write a larger "
                           "until.at_most_epochs")
    for trials in accuracy.alike(campaign):
        one = trials[0]
        settings = Settings(networks.get(one["network"]), one["global_batch"], one["precision"],
                            one["data"], until)
        epochs = {f"{each['framework']} {rows.loc[each['trial'], 'release']}":
                  {int(seed): int(count)
                   for seed, count in accuracy.reached(campaign, each["trial"])["epoch"].items()}
                  for each in trials}
        data_set = campaign.meta["data_sets"][one["data"]]
        file = convergence.keep(settings, data_set, epochs, convergence.KEPT)
        print(f"{file.name}: {', '.join(epochs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
