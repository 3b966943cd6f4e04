"""`dlbench track`: a timeline of a framework's releases, which fills in what is missing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.comparisons import compare
from harness.cli.options import words
from harness.cli.terminal import dim, interruptible, say, writing
from harness.errors import WrongUse


@dataclass(frozen=True, kw_only=True)
class TrackOptions(compare.FollowingReleases):
    releases: Annotated[str, typer.Option(
        help="A range, as in 2.9..2.13, or a list with commas.")]
    index_url: Annotated[str, typer.Option(
        metavar="URL", help="Where the releases of a range are looked up.")] = ""
    fail_on_regression: Annotated[bool, typer.Option(
        "--fail-on-regression", help="Exit 1 if a release is shown to be slower.")] = False
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Print what is missing; start nothing.")] = False


def track(options: TrackOptions) -> None:
    """Compare each release of a range with the first, and mark those that became slower.

    Releases that the folder has already are not measured again.
    """
    from analysis.compare import track as timelines
    from analysis.records import manifest
    from harness.campaign.rehearsal import SideFailed
    from harness.comparison.sides import split

    folder = options.out or Path("results") / f"track-{options.framework.replace(':', '-')}"
    listed = _listed(split(options.framework)[0], options)
    sides = {each: options.side(each) for each in listed}
    base = _base(folder) or sides[listed[0]]
    options.refuse_idle_interpreters([base, *sides.values()])
    missing = [each for each in listed if sides[each] != base and not _is_finished(folder / each)]
    say(f"{folder}: base {base}; missing: {', '.join(missing) or 'none'}")
    if options.dry_run:
        return
    absent = []
    with interruptible(folder):
        for release in missing:
            place = folder / release
            try:
                compare.run_live(options.request(base, sides[release]), place,
                                 (place / "campaign.json").exists(), options.allow_dirty)
            except SideFailed as failed:
                if failed.side == "A":
                    raise WrongUse(str(failed)) from None
                absent.append(str(failed))
                say(absent[-1], "yellow")
    with writing(folder):
        timeline = timelines.read(folder, absent)
        paths = timelines.write(timeline, folder)
        manifest.write_manifest(folder)
    say(timelines.headline(timeline))
    say(f"Page: {paths[-1]}")
    if options.fail_on_regression and len(timeline.regressions):
        raise typer.Exit(1)
    if absent:
        raise typer.Exit(4)


def _listed(framework: str, options: TrackOptions) -> list[str]:
    """Return the releases in their order: those listed, or those of a range that an index has."""
    from analysis.compare.releases import read_range
    from analysis.compare.track import order
    from harness.campaign.campaign import choose_device
    from harness.environments import recipes, wheels
    from harness.machine import hardware

    recipes.load(framework)
    if ".." not in options.releases:
        found = words(options.releases)
    else:
        try:
            wanted = read_range(options.releases)
        except ValueError as error:
            raise WrongUse(f"--releases {error}") from None
        device = choose_device("auto", hardware.describe())
        there = [*recipes.load(framework).releases,
                 *wheels.versions(framework, device, options.index_url, dim)]
        found = [each for each in there if wanted.holds(each)]
    if len(set(found)) < 2:
        raise WrongUse(f"--releases {options.releases}: two releases or more make a timeline, and "
                       f"there is {', '.join(found) or 'none'}")
    return sorted(dict.fromkeys(found), key=order)


def _base(folder: Path) -> str:
    """Return the base of the comparisons that a folder has already, or ""."""
    pages = sorted(folder.glob("*/campaign.json"))
    return str(_read(pages[0])["comparison"]["a"]) if pages else ""


def _is_finished(folder: Path) -> bool:
    file = folder / "campaign.json"
    return file.exists() and _read(file)["finished"] is not None


def _read(file: Path) -> dict[str, Any]:
    from analysis.records import reader

    return reader.read(file.parent).meta
