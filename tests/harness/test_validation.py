"""Configuration files: each thing that can be wrong with one is a message that names file, key and remedy."""

from pathlib import Path

import pytest

from harness.errors import WrongUse
from harness.validation import Strict, load_yaml, read_yaml


class Wheel(Strict):
    inches: int
    tyre: str = "road"


class Cart(Strict):
    name: str
    wheels: list[Wheel] = []
    spare: dict[str, Wheel] = {}


def written(folder: Path, text: str) -> Path:
    path = folder / "cart.yaml"
    path.write_text(text)
    return path


def message(path: Path) -> str:
    with pytest.raises(WrongUse) as caught:
        load_yaml(path, Cart)
    return str(caught.value).replace(f"{path}: ", "FILE: ")


def test_a_good_file_becomes_its_model(tmp_path):
    path = written(tmp_path, "name: red\nwheels: [{inches: 26}]\nspare: {front: {inches: 20, tyre: mud}}\n")
    assert load_yaml(path, Cart) == Cart(name="red", wheels=[Wheel(inches=26)], spare={"front": Wheel(inches=20, tyre="mud")})


@pytest.mark.parametrize(("text", "expected"), [
    ("name: red\nwheel: []\n", "FILE: wheel: unknown key; did you mean wheels? Known: name, spare, wheels"),
    ("name: red\nzzz: 1\n", "FILE: zzz: unknown key; Known: name, spare, wheels"),
    ("name: red\nwheels: [{inches: 26, tire: mud}]\n",
     "FILE: wheels.0.tire: unknown key; did you mean tyre? Known: inches, tyre"),
    ("name: red\nspare: {front: {inchs: 2}}\n",
     "FILE: spare.front.inches: this key is missing; add it\n"
     "FILE: spare.front.inchs: unknown key; did you mean inches? Known: inches, tyre"),
    ("name: 2.13\n",
     'FILE: name: input should be a valid string, is 2.13; YAML reads it as a number or a truth value, so put it in "quotes"'),
    ("name: red\nwheels: [3]\n", "FILE: wheels.0: input should be a valid mapping, is 3; the default is []"),
    ("- red\n", "FILE: must be a mapping of keys to values, is a list"),
    ("", "FILE: must be a mapping of keys to values, is empty"),
])
def test_a_fault_names_the_file_the_key_and_the_remedy(tmp_path, text, expected):
    assert message(written(tmp_path, text)) == expected


def test_a_file_in_another_encoding_names_the_remedy(tmp_path):
    path = tmp_path / "cart.yaml"
    path.write_bytes("name: r\u00f6t\n".encode("latin-1"))
    assert message(path).startswith("FILE: cannot be read: ") and message(path).endswith("; save it as UTF-8")


def test_a_key_written_twice_is_refused(tmp_path):
    assert "the key name is written twice" in message(written(tmp_path, "name: red\nname: blue\n"))


def test_broken_yaml_names_the_file_and_the_line(tmp_path):
    text = message(written(tmp_path, "name: red\nwheels: [\n"))
    assert text.startswith("FILE: not valid YAML:") and "line 3" in text


def test_a_missing_file_names_the_closest_one(tmp_path):
    written(tmp_path, "name: red\n")
    with pytest.raises(WrongUse) as caught:
        read_yaml(tmp_path / "crt.yaml")
    assert str(caught.value) == f"{tmp_path}/crt.yaml: no such file; did you mean cart.yaml? Known: cart.yaml"
