"""Wrong command lines end in one short message and exit code 2, before anything is installed or measured."""

import pytest

from tests.odd import options
from tests.slow import slow_but

CASES = dict(options.cases())
# A third of each option's odd values, and all that is wrong without one.
QUICK = {*list(CASES)[::3], *(name for name in CASES if not name[-1].isdigit())}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    options.lay_out(folder)
    return folder


@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_a_wrong_command_line_is_refused_in_one_short_message(name, places, monkeypatch):
    monkeypatch.chdir(places)
    before = sorted(path.name for path in places.iterdir())
    assert options.judge(CASES[name], places).fault == ""
    assert sorted(path.name for path in places.iterdir()) == before
