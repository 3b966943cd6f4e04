"""A suite is read whole, changed by overrides, and refused with file, key and remedy where it cannot be meant."""

from pathlib import Path

import pytest

import networks
from analysis.trials import effort
from harness.errors import WrongUse
from harness.plan.parts import Limits, NetworkChoice
from harness.plan.suite import Suite, load_suite

CHECKOUT = Path(__file__).parents[3]
SUITE = """
title: A suite of a test
frameworks: [pytorch, tensorflow]
networks:
  fcn5: {batch: 512, precision: tf32}
  resnet56: {batches: [16, 32], tuning: tuned}
  lstm32:
processes: 3
limits: {window: 30}
"""


@pytest.fixture
def load(tmp_path):
    """Load SUITE, or another text, with overrides."""

    def read(*overrides: str, text: str = SUITE) -> Suite:
        (tmp_path / "suite.yaml").write_text(text)
        return load_suite(tmp_path / "suite.yaml", list(overrides))

    return read


def test_a_file_becomes_a_suite_and_what_it_leaves_out_has_its_default(load):
    assert load() == Suite(
        title="A suite of a test", frameworks=("pytorch", "tensorflow"), processes=3, limits=Limits(window=30),
        networks={"fcn5": NetworkChoice(batches=(512,), precisions=("tf32",)),
                  "resnet56": NetworkChoice(batches=(16, 32), tunings=("tuned",)), "lstm32": NetworkChoice()},
    )


def test_an_empty_mapping_is_every_published_network_under_the_defaults(load):
    suite = load(text="{}")
    assert suite == Suite(networks={name: NetworkChoice() for name in networks.names(large=False)})
    assert (suite.processes, suite.windows, suite.device, suite.threads, suite.data) == (5, 8, "auto", ("all",), ("auto",))


def test_one_value_and_shorthand_keys_stand_for_lists_of_one(load):
    short = load(text="{framework: jax, network: fcn5, batch: 64, precision: bf16, tuning: tuned, devices: 2, data: real}")
    long = load(text="{frameworks: [jax], networks: {fcn5: {}}, batches: [64], precisions: [bf16], tunings: [tuned], "
                     "devices: [2], data: [real]}")
    assert short == long
    assert short.batches == (64,)


@pytest.mark.parametrize(("override", "changed"), [
    ("devices=1,2", {"devices": (1, 2)}),
    ("frameworks=pytorch==2.12.0,jax", {"frameworks": ("pytorch==2.12.0", "jax")}),
    ("framework=paddle", {"frameworks": ("paddle",)}),
    ("title=Two networks, one GPU", {"title": "Two networks, one GPU"}),
    ("threads=all,2", {"threads": ("all", 2)}),
    ("threads=[all, 2]", {"threads": ("all", 2)}),
    ("networks={fcn5: {batch: 8}, lstm32: }", {"networks": {"fcn5": {"batches": (8,)}, "lstm32": {}}}),
    (" processes = 7 ", {"processes": 7}),
    ("limits.window=5", {"limits": Limits(window=5)}),
    ("limits.start=1.5", {"limits": Limits(window=30, start=1.5)}),
    ("check.batch=4", {"check": {"batch": 4}}),
    ("interpreters.jax=/usr/bin/python3", {"interpreters": {"jax": Path("/usr/bin/python3")}}),
])
def test_an_override_changes_its_key_and_nothing_else(load, override: str, changed: dict):
    plain = load()
    assert load(override) == Suite.model_validate({**plain.model_dump(), **changed})
    assert load(override) != plain


def test_the_last_of_two_overrides_wins(load):
    assert load("processes=7", "processes=9").processes == 9


def test_naming_networks_keeps_what_the_suite_says_of_them(load):
    assert load("networks=resnet56,alexnet").networks == {
        "resnet56": NetworkChoice(batches=(16, 32), tunings=("tuned",)), "alexnet": NetworkChoice()}
    assert load("network=fcn5").networks == {"fcn5": NetworkChoice(batches=(512,), precisions=("tf32",))}


def test_naming_networks_of_a_suite_that_only_lists_them_chooses_among_all(load):
    assert load("networks=alexnet", text="networks: [fcn5, resnet56]").networks == {"alexnet": NetworkChoice()}


@pytest.mark.parametrize(("override", "field", "value"), [
    ("batch=64", "batches", (64,)), ("batches=64,128", "batches", (64, 128)), ("precision=bf16", "precisions", ("bf16",)),
    ("tunings=stock,tuned", "tunings", ("stock", "tuned")), ("data=device", "data", ("device",)),
])
def test_an_override_for_all_networks_is_stronger_than_what_the_file_says_of_one(load, override: str, field: str, value: tuple):
    suite = load(override)
    assert getattr(suite, field) == value
    assert {getattr(choice, field) for choice in suite.networks.values()} == {()}
    kept = {"batches", "precisions", "tunings"} - {field}
    before = {name: choice.model_dump(include=kept) for name, choice in load().networks.items()}
    assert {name: choice.model_dump(include=kept) for name, choice in suite.networks.items()} == before


def test_an_override_with_dots_changes_one_network(load):
    assert load("networks.resnet56.batch=8").networks == {**load().networks,
                                                          "resnet56": NetworkChoice(batches=(8,), tunings=("tuned",))}
    assert load("networks.lstm32.batches=8,16").networks["lstm32"] == NetworkChoice(batches=(8, 16))
    assert load("networks.fcn5.batch=8", text="networks: [fcn5, resnet56]").networks == {
        "fcn5": NetworkChoice(batches=(8,)), "resnet56": NetworkChoice()}


@pytest.mark.parametrize(("overrides", "message"), [
    (["procesess=3"], "{file}: procesess: unknown key; did you mean processes? Known: "),
    (["networks.fcn5.bach=3"],
     "{file}: networks.fcn5.bach: unknown key; did you mean batches? Known: batches, data, precisions, tunings"),
    (["limits.windows=3"], "{file}: limits.windows: unknown key; did you mean window? Known: build, check, start, window"),
    (["networks=resnet5"], "{file}: networks: unknown network resnet5; did you mean resnet56? Known: alexnet, "),
    (["networks="], "{file}: networks: there is no value; write one, or leave the key out"),
    (["devices="], "{file}: devices: there is no value; write one, as in devices: [1], or leave the key out"),
    (["strategies="], "{file}: strategies: there is no value; write one, as in strategies: [default], or leave the key out"),
    (["devices=true"], "{file}: devices.0: input should be a number, is True, which YAML reads as a truth value"),
    *[([f"{key}=true"], f"{{file}}: {key}: input should be a number, is True") for key in (
        "seed", "window_seconds", "interval", "check.steps", "limits.start")],
    (["window_seconds=.inf"], "{file}: window_seconds: input should be a finite number, is inf; the default is 0.5"),
    *[([f"threads={value}"], f"{{file}}: threads.0: input should be a whole number from 1 to 4096, or all, is {shown}")
      for value, shown in (("many", "'many'"), ("0", "0"), ("2.5", "2.5"), ("true", "True"))],
    (["devices=0"], "{file}: devices.0: input should be greater than 0, is 0; the default is 1"),
    (["scaling=strange"], "{file}: scaling.0: input should be 'weak' or 'strong', is 'strange'; the default is weak"),
    (["limits.build=0"], "{file}: limits.build: input should be greater than 0, is 0; the default is 900"),
    (["batch=-4"], "{file}: batches.0: input should be greater than 0, is -4"),
    (["networks.fcn5.batch=-4"], "{file}: networks.fcn5.batches.0: input should be greater than 0, is -4"),
    (["batch=many"], "{file}: batches.0: input should be a number, is the text 'many'"),
    (["precision=fp8"], "{file}: precisions.0: input should be 'fp32', 'tf32', 'bf16', 'fp16' or 'int8', is 'fp8'"),
    (["device=gpu"], "{file}: device: input should be 'auto', 'cpu', 'cuda' or 'both', is 'gpu'"),
    (["skip=[{}]"], "{file}: skip.0: an entry without a value would skip everything"),
    (["skip=[{network: resnet5}]"], "{file}: skip: unknown network resnet5; did you mean resnet56?"),
    (["skip=[{framework: jx}]"], "{file}: skip: unknown framework jx; did you mean jax?"),
    (["skip=[{strategy: dpp}]"], "{file}: skip: unknown strategy dpp; did you mean ddp?"),
    (["skip=[{devices: 0}]"], "{file}: skip.0.devices: input should be greater than 0, is 0"),
    (["processes=0"], "{file}: processes: input should be greater than 0, is 0; the default is 5"),
    (["window_seconds=0"], "{file}: window_seconds: input should be greater than 0, is 0"),
    (["networks.fcn5=512"], "{file}: networks.fcn5: "),
    (["processes"], "override 'processes': write key=value, for example devices=1,2"),
    (["processes.more=3"], "override 'processes.more': 'processes' is not a mapping, so nothing below it can be set"),
    (["devices=[1,"], "override 'devices=[1,': its value is not YAML (line 1: expected the node content, but found '<stream end>'); "),
    (["networks=fcn5,{a: 1}"], "override 'networks': write names, or one mapping from names"),
    (["devices=1,,2"], "override 'devices=1,,2': its value is not YAML (line 1: expected the node content, but found ','); write one value, or several "),
])
def test_a_wrong_override_is_refused_with_file_key_and_remedy(load, tmp_path, overrides: list[str], message: str):
    with pytest.raises(WrongUse) as caught:
        load(*overrides)
    assert str(caught.value).startswith(message.format(file=tmp_path / "suite.yaml"))


@pytest.mark.parametrize(("text", "message"), [
    ("frameworks: []", "{file}: frameworks: the list is empty; write one, as in frameworks: [pytorch, tensorflow], or leave "),
    ("devices: [true]", "{file}: devices.0: input should be a number, is True"),
    ("devices:", "{file}: devices: there is no value; write one, as in devices: [1], or leave the key out"),
    ("precisions: []", "{file}: precisions: the list is empty"),
    ("networks: []", "{file}: networks: the list is empty"),
    ("networks: [fcn5, {resnet56: {batch: 16}}]", "{file}: networks: write a list of names, or a mapping"),
    ("networks: 5", "{file}: networks: "),
    ("batches: [2]\nbatch: 4", "{file}: batch: batches is written twice"),
    ("networks: {fcn5: {batch: 2, batches: 4}}", "{file}: batches: batches is written twice"),
    ("{1: 2}", "{file}: "),
    ("- fcn5", "{file}: must be a mapping of keys to values, is a list"),
    ("processes: 3\nprocesses: 5", "{file}: not valid YAML: "),
    ("title: [", "{file}: not valid YAML: "),
])
def test_a_wrong_file_is_refused_with_its_name(load, tmp_path, text: str, message: str):
    with pytest.raises(WrongUse) as caught:
        load(text=text)
    assert str(caught.value).startswith(message.format(file=tmp_path / "suite.yaml"))


def test_a_missing_file_is_answered_with_the_closest_one(tmp_path):
    (tmp_path / "smoke.yaml").write_text("{}")
    with pytest.raises(WrongUse) as caught:
        load_suite(tmp_path / "smok.yaml")
    assert str(caught.value) == f"{tmp_path / 'smok.yaml'}: no such file; did you mean smoke.yaml? Known: smoke.yaml"


SUITES = [path for path in sorted((Path(__file__).parents[3] / "configs").glob("*.yaml")) if path.stem != "data"]  # data sets


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_every_published_suite_is_valid(path: Path):
    assert load_suite(path).title


def test_misspelt_data_is_named_with_what_is_known(tmp_path):
    (tmp_path / "suite.yaml").write_text("networks: tiny_fcn\ndata: devise\n")
    with pytest.raises(WrongUse, match=r"data: unknown data devise; did you mean device\?"):
        load_suite(tmp_path / "suite.yaml")


@pytest.mark.parametrize(("text", "said"), [
    ("devices: 2\nstrategies: [ring, rng]\n", r"strategies: unknown strategy rng; did you mean ring\? Known: all_reduce, "),
    ("strategies: ring\n", "strategies: ring: one device has nothing to aggregate; write devices of 2 or more, or leave "),
])
def test_strategies_that_nobody_has_or_that_no_device_needs_are_refused(tmp_path, text: str, said: str):
    (tmp_path / "suite.yaml").write_text(f"networks: tiny_fcn\n{text}")
    with pytest.raises(WrongUse, match=said):
        load_suite(tmp_path / "suite.yaml")


FOR_GPUS = [file for file in (*sorted((CHECKOUT / "configs").glob("*.yaml")), CHECKOUT / "harness/cli/first_suite.yaml")
            if file.name != "data.yaml" and load_suite(file).device != "cpu"]


@pytest.mark.parametrize("file", FOR_GPUS, ids=lambda file: file.name)
def test_a_shipped_suite_that_may_run_on_a_gpu_meets_the_minimum_effort_of_the_audit(file):
    suite = load_suite(file)
    # An epoch is a window while training to a target.
    enough = (effort.PROCESSES, effort.WINDOW_SECONDS, 1 if suite.until else effort.WINDOW_STEPS)
    short = [name for name, least in zip(("processes", "window_seconds", "window_steps"), enough, strict=True)
             if getattr(suite, name) < least]
    assert short == []


def test_suites_for_gpus_are_told_from_those_for_cpus():
    assert {"gpu.yaml", "scaling.yaml", "compare.yaml", "first_suite.yaml"} <= {file.name for file in FOR_GPUS}
    assert "smoke.yaml" not in {file.name for file in FOR_GPUS}
