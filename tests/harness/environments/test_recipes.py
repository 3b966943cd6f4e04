"""The files of configs/frameworks: what they may say, how a release is named, and the recipe of a release that none lists."""

from pathlib import Path

import pytest

from harness.environments import recipes
from harness.errors import WrongUse

TOY = """\
title: Toy
runner: runners.toy_runner
distributions: [toy]
default: "1.9"
releases:
  "1.9":
    python: "3.9"
    packages: {cpu: [toy==1.9, toylib==1.9, numpy==1.23.5], cuda: ["toy[cuda]==1.9"]}
  "1.10":
    python: "3.11"
    packages: {cpu: [toy==1.10, toylib==1.10, numpy==1.23.5]}
    unsupported: {cuda: its wheel has no GPU libraries}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy.yaml").write_text(TOY)
    return tmp_path


def refusal(folder: Path, old: str, new: str) -> str:
    assert old in TOY
    (folder / "toy.yaml").write_text(TOY.replace(old, new, 1))
    with pytest.raises(WrongUse) as caught:
        recipes.load("toy", folder)
    return str(caught.value).replace(f"{folder}/toy.yaml: ", "")


@pytest.mark.parametrize("name", recipes.names())
def test_every_shipped_file_is_valid_and_pins_its_default(name):
    framework = recipes.load(name)
    recipe = framework.recipe(framework.default)
    for served in filter(None, (framework.runner, framework.engine)):
        module, _, name = served.partition(":")
        written = (recipes.CHECKOUT / f"{module.replace('.', '/')}.py").read_text()
        assert module.startswith("runners.") and f"\nclass {name or 'Runner'}(" in written
    for packages in recipe.packages.values():
        assert recipe.script or any(package.endswith(f"=={framework.default}") for package in packages)


def test_a_name_alone_means_the_default_release(folder):
    assert recipes.parse("toy", folder) == ("toy", "1.9")


def test_a_name_with_a_release_means_that_release(folder):
    assert recipes.parse("toy==1.10", folder) == ("toy", "1.10")
    assert recipes.parse(" toy == 2.0.post1 ", folder) == ("toy", "2.0.post1")


@pytest.mark.parametrize("specification", ["toy==", "toy==latest", "toy==1.0 --index-url"])
def test_a_release_that_is_no_version_is_refused(folder, specification):
    with pytest.raises(WrongUse, match=r"a release is written as in toy==1\.9"):
        recipes.parse(specification, folder)


def test_an_unknown_framework_names_the_closest_one(folder):
    with pytest.raises(WrongUse) as caught:
        recipes.parse("toi==1.9", folder)
    assert str(caught.value) == "unknown framework toi; did you mean toy? Known: toy"


def test_an_unlisted_release_is_the_newest_recipe_with_its_version_replaced(folder):
    recipe = recipes.load("toy", folder).recipe("1.11")
    assert recipe.python == ["3.11"]
    assert recipe.packages == {"cpu": ["toy==1.11", "toylib==1.11", "numpy==1.23.5"]}
    assert recipe.unsupported == {"cuda": "its wheel has no GPU libraries"}


def test_an_unlisted_release_takes_the_recipe_of_the_next_newer_one(folder):
    assert recipes.load("toy", folder).recipe("1.9.5").python == ["3.11"]
    assert recipes.load("toy", folder).recipe("1.8").packages["cpu"] == ["toy==1.8", "toylib==1.8", "numpy==1.23.5"]


@pytest.mark.parametrize(("written", "read"), [
    ('"3.9"', ["3.9"]), ("3.9 to 3.9", ["3.9"]), ("3.9 to 3.11", ["3.11", "3.10", "3.9"]), ('["3.11", "3.9"]', ["3.11", "3.9"])])
def test_a_range_of_pythons_is_written_out_the_newest_first(folder, written, read):
    (folder / "toy.yaml").write_text(TOY.replace('"3.9"', written))
    assert recipes.load("toy", folder).recipe("1.9").python == read


@pytest.mark.parametrize("written", ["3.11 to 3.9", "3 to 4", "[]"])
def test_what_is_no_range_of_pythons_is_refused(folder, written):
    assert "releases.1.9.python" in refusal(folder, '"3.9"', written)


def test_a_package_with_a_marker_is_for_the_pythons_that_it_names(folder):
    (folder / "toy.yaml").write_text(TOY.replace("numpy==1.23.5]", 'numpy==2.4.6; python_version > "3.10", numpy==2.2.6; python_version <= "3.10"]'))
    recipe = recipes.load("toy", folder).recipe("1.9")
    assert recipe.packages_for("cpu", "3.14") == ["toy==1.9", "toylib==1.9", "numpy==2.4.6"]
    assert recipe.packages_for("cpu", "3.9") == ["toy==1.9", "toylib==1.9", "numpy==2.2.6"]


# GPU environments without a trace, and why.
UNTRACED = {
    ("mxnet", "1.9.1"): "CUDA 11, of which cupti-python has no release",
    **{("paddle", release): "no release accepts the CUPTI that its wheel pins" for release in ("3.3.1", "3.2.2", "3.1.1")},
    ("pytorch_media", "2.13.0"): "for the study of pipelines, which is not traced",
    ("tensorflow", "2.19.0"): "no release accepts the CUPTI that it pins",
}


def test_every_gpu_environment_that_is_traced_has_cupti_of_its_cuda():
    """Without it each GPU row has the reason `no trace without the package cupti-python`, and cannot be explained."""
    without = set()
    for name in recipes.names():
        for release, recipe in recipes.load(name).releases.items():
            packages = [str(each).partition(";")[0].strip() for each in recipe.packages.get("cuda", ())]
            cupti = [each.partition("==")[2] for each in packages if each.startswith("cupti-python==")]
            if packages and not cupti:
                without.add((name, release))
            # TensorFlow's wheels bring CUDA 12 without a word in their names.
            of_12 = name == "tensorflow" or any("cuda12" in each for each in packages)
            assert [each.partition(".")[0] for each in cupti] in ([], ["12" if of_12 else "13"]), (name, release)
    assert without == set(UNTRACED)


def test_a_package_with_a_marker_that_is_none_is_refused(folder):
    assert "numpy==1.23.5; snake > 3: the marker" in refusal(folder, "numpy==1.23.5]", "numpy==1.23.5; snake > 3]")


@pytest.mark.parametrize(("driver", "default"), [("3.14", "1.10"), ("3.11", "1.10"), ("3.9", "1.9"), ("3.8", "1.10")])
def test_of_several_defaults_the_first_for_the_drivers_python_is_taken(folder, monkeypatch, driver, default):
    monkeypatch.setattr(recipes, "DRIVER", driver)
    (folder / "toy.yaml").write_text(TOY.replace('default: "1.9"', 'default: ["1.10", "1.9"]').replace('"3.11"', "3.11 to 3.14"))
    assert recipes.load("toy", folder).default == default


@pytest.mark.parametrize("minor", range(10, 15))
def test_every_framework_of_today_has_a_default_for_each_python(monkeypatch, minor):
    """PyTorch, JAX and the reference run on the driver's own Python, whichever that is."""
    monkeypatch.setattr(recipes, "DRIVER", f"3.{minor}")
    recipes._load.cache_clear()
    try:
        for name in ("pytorch", "jax", "reference"):
            framework = recipes.load(name)
            assert f"3.{minor}" in framework.recipe(framework.default).python
    finally:
        recipes._load.cache_clear()


def test_a_default_that_is_not_listed_is_refused(folder):
    assert refusal(folder, 'default: "1.9"', 'default: ["1.10", "2.0"]') == "default: 2.0 is not among the releases (1.9, 1.10)"


def test_an_unlisted_release_of_what_a_script_builds_is_refused(folder):
    (folder / "toy.yaml").write_text(TOY.replace("toy==1.10, toylib==1.10, ", ""))
    with pytest.raises(WrongUse, match=r"Toy 1\.11: no such release here; there is 1\.9, 1\.10"):
        recipes.load("toy", folder).recipe("1.11")


def test_a_listed_release_stays_as_it_is_written(folder):
    assert recipes.load("toy", folder).recipe("1.9").packages["cuda"] == ["toy[cuda]==1.9"]


def test_a_device_without_packages_is_unsupported_with_its_reason(folder):
    assert recipes.unsupported("toy", "1.10", "cuda", folder) == "its wheel has no GPU libraries"
    assert recipes.unsupported("toy", "1.9", "cuda", folder) is None


def test_a_misspelt_key_names_the_file_and_the_close_key(folder):
    assert refusal(folder, "    python:", "    pyhton:") == (
        "releases.1.9.python: this key is missing; add it\n"
        "releases.1.9.pyhton: unknown key; did you mean python? Known: container, indexes, notes, own_index, packages, python, script, "
        "system, unsupported, variables")


def test_a_device_that_is_neither_supported_nor_refused_is_an_error(folder):
    assert refusal(folder, ", cuda: [\"toy[cuda]==1.9\"]", "") == (
        "releases.1.9: give exactly one of packages.cuda, container.cuda and unsupported.cuda (the reason)")


def test_a_device_that_is_both_supported_and_refused_is_an_error(folder):
    assert refusal(folder, "{cuda: its", "{cpu: it is slow, cuda: its") == (
        "releases.1.10: give exactly one of packages.cpu, container.cpu and unsupported.cpu (the reason)")


def test_a_default_that_is_not_listed_is_an_error(folder):
    assert refusal(folder, 'default: "1.9"', 'default: "1.8"') == "default: 1.8 is not among the releases (1.9, 1.10)"


def test_a_script_that_does_not_exist_is_an_error(folder):
    assert refusal(folder, '    python: "3.9"', '    script: scripts/nowhere\n    python: "3.9"') == (
        "releases.1.9: script: scripts/nowhere is no file of the checkout")


def test_a_python_version_read_as_a_number_asks_for_quotes(folder):
    assert refusal(folder, 'python: "3.9"', "python: 3.9") == (
        "releases.1.9.python.0: input should be a valid string, is 3.9; "
        'YAML reads it as a number or a truth value, so put it in "quotes"')
