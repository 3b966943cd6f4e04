"""Nightlies and wheels: a small package from an index in a folder is found, installed by pip, and compared."""

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.environments import recipes, store
from harness.environments.recipes import Framework
from harness.environments.wheels import Wheel, of_file, recipe_of
from harness.errors import WrongUse
from tests.slow import slow

PYTHON = "{}.{}".format(*sys.version_info[:2])
SMALL = {"networks": "tiny_fcn", "device": "cpu", "threads": 1, "processes": 3, "windows": 2, "window_seconds": 0.01,
         "data": "host", "peaks": False, "telemetry": False}


def make_wheel(folder: Path, version: str, slower: float = 1.0) -> Path:
    """Write a wheel of `fakeframework`, which takes NumPy from where this Python has it."""
    record = f"fakeframework-{version}.dist-info"
    files = {
        "fakeframework/__init__.py": f"__version__ = {version!r}\nslower = {slower}\n",
        "fakeframework.pth": f"{Path(np.__file__).parents[1]}\n",
        f"{record}/METADATA": f"Metadata-Version: 2.1\nName: fakeframework\nVersion: {version}\n",
        f"{record}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
             for name, text in files.items()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fakeframework-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{record}/RECORD": "\n".join([*lines, f"{record}/RECORD,,"]) + "\n"}.items():
            wheel.writestr(name, text)
    return path


@pytest.fixture
def index(tmp_path):
    """An index of two releases and a slower nightly."""
    folder = tmp_path / "simple" / "fakeframework"
    made = [make_wheel(folder, version, slower) for version, slower in (("1.0", 1.0), ("1.1", 1.0), ("1.2.dev20261123", 1.5))]
    (folder / "index.html").write_text("".join(f'<a href="{each.name}">{each.name}</a>' for each in made))
    return folder.parent.as_uri()


@pytest.fixture
def fake(monkeypatch, tmp_path, made_up_clock):
    """A framework whose package pip installs for this Python; one release is listed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLBENCH_ENVS", str(tmp_path / "envs"))
    monkeypatch.setenv("PIP_NO_INDEX", "")
    Path("small.yaml").write_text(yaml.safe_dump(SMALL))
    recipe = {"python": PYTHON, "packages": {"cpu": ["fakeframework==1.0"]}, "unsupported": {"cuda": "a fake"}}
    framework = Framework(title="fake", runner="tests.faults.reference:Packaged", distributions=["fakeframework"], default="1.0",
                          releases={"1.0": recipe})
    monkeypatch.setattr(recipes, "load", lambda name, folder=None: framework)
    monkeypatch.setattr(recipes, "names", lambda folder=None: ["fake"])
    return framework


@slow
def test_a_nightly_is_found_on_an_index_installed_and_shown_to_be_slower(dlbench, fake, index, tmp_path):
    wheel = make_wheel(tmp_path / "dist", "1.1")
    words = ["compare", f"mine={wheel}", "fake", "--pre", "--index-url", index, "--suite", "small.yaml", "--threshold", "5%"]
    planned = dlbench(*words, "--dry-run")
    assert (planned.code, "fake 1.2.dev20261123" in planned.out, Path("envs").exists()) == (0, True, False)
    code, out, error = dlbench(*words, "--out", "out")
    meta = json.loads(Path("out/campaign.json").read_text())
    assert (code, error) == (1, "")
    assert "Regression beyond 5 %: tiny_fcn, batch 4 (1.4" in out or "Regression beyond 5 %: tiny_fcn, batch 4 (1.5" in out
    assert (meta["comparison"]["a"], meta["comparison"]["b"]) == ("mine", "fake==1.2.dev20261123")
    assert meta["comparison"]["wheels"]["B"]["url"].startswith(f"{index}/fakeframework/fakeframework-1.2.dev20261123-py3")
    locks = {name: lock["packages"] for name, lock in meta["environments"].items()}
    assert "fakeframework==1.1" in locks["fake==1.1 of A"] and "fakeframework==1.2.dev20261123" in locks["fake==1.2.dev20261123 of B"]
    assert {each.release for each in store.list_environments()} == {"1.1", "1.2.dev20261123"}


@pytest.mark.parametrize(("words", "code", "said"), [
    (["fake==1.0", "fake==1.5"], 4, "B (fake==1.5) could not be built or run: ERROR: No matching distribution found for fakeframework==1.5"),
    (["fake==1.0", "fake==1.0:tuned"], 2, "--pre, --index-url: are for a side without a release"),
])
def test_what_an_index_does_not_have_ends_with_4_and_what_needs_none_with_2(dlbench, fake, index, words, code, said):
    found = dlbench("compare", *words, "--index-url", index, "--suite", "small.yaml", "--out", "out")
    assert (found.code, said in found.out + found.err, Path("out/campaign.json").exists()) == (code, True, False)


def test_a_wheel_says_its_release_and_its_hash_and_takes_the_place_of_its_package(fake, tmp_path, monkeypatch):
    path = make_wheel(tmp_path / "dist", "1.3")
    wheel = of_file(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert wheel == Wheel("fake", "1.3", f"{path.as_uri()}#sha256={digest}")
    packages = ["fakeframework[all]==1.0", "fakelib==1.0", "numpy==2.4.6"]
    listed = fake.releases["1.0"].model_copy(update={"packages": {"cpu": packages}})
    several = fake.model_copy(update={"releases": {"1.0": listed}})
    monkeypatch.setattr(recipes, "load", lambda name, folder=None: several)
    made = recipe_of(Wheel("fake", "1.3", wheel.url, "https://nightly.example"), "cpu")
    assert made.packages["cpu"] == [f"fakeframework[all] @ {wheel.url}", "numpy==2.4.6"]
    assert (made.indexes["cpu"], made.python) == (["https://nightly.example"], [PYTHON])


@pytest.mark.parametrize(("name", "said"), [
    ("fake.whl", "is not named as a wheel"),
    ("torch-2.13.0-py3-none-any.whl", "torch is no package of any framework; known: fakeframework"),
])
def test_a_file_that_is_no_wheel_of_a_framework_is_wrong_use(fake, tmp_path, name, said):
    (tmp_path / name).write_text("")
    with pytest.raises(WrongUse, match=said):
        of_file(tmp_path / name)


def test_one_wheel_under_two_names_and_two_under_one_are_refused(dlbench, fake, tmp_path):
    here, there = make_wheel(tmp_path / "a", "1.3"), make_wheel(tmp_path / "b", "1.3", 1.1)
    for words, said in (([f"x={here}", f"y={here}"], "x and y are one wheel: name two"),
                        ([str(here), str(there)], "names two wheels; give each its own name")):
        code, _, error = dlbench("compare", *words, "--suite", "small.yaml")
        assert (code, said in error) == (2, True)
    assert dlbench("compare", f"x={here}", f"y={there}", "--suite", "small.yaml", "--dry-run").code == 0
