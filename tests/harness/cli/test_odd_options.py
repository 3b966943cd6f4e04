"""Wrong command lines end in one short message and exit code 2, before anything is installed or measured."""

import pytest

from scripts.fuzzing import options

CASES = dict(options.cases())


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    options.lay_out(folder)
    return folder


@pytest.mark.parametrize("name", list(CASES))
def test_a_wrong_command_line_is_refused_in_one_short_message(name, places, monkeypatch):
    monkeypatch.chdir(places)
    before = sorted(path.name for path in places.iterdir())
    assert options.judge(CASES[name], places).fault == ""
    assert sorted(path.name for path in places.iterdir()) == before
