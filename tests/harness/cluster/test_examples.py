"""The files for other engines: each is YAML that runs a suite of ours and says what has not run."""

import re
from pathlib import Path

import pytest
import yaml

from harness.plan.suite import load_suite

CHECKOUT = Path(__file__).resolve().parents[3]
EXAMPLES = CHECKOUT / "examples"


@pytest.mark.parametrize("engine", ["kubernetes", "skypilot", "ray"])
def test_an_example_goes_on_with_a_campaign_and_says_that_nobody_ran_it(engine):
    text = (EXAMPLES / f"{engine}.yaml").read_text()
    assert isinstance(yaml.safe_load(text), dict)
    assert "Not run here" in text
    [suite] = re.findall(r"dlbench run (\S+) --out \$out \$resume", text)
    assert load_suite(CHECKOUT / "configs" / f"{suite}.yaml").frameworks
    assert 'resume=$([ -e $out/campaign.json ] && echo --resume)' in text


def test_the_recipes_of_rocm_are_a_suite_and_say_that_no_amd_gpu_has_seen_them():
    suite = load_suite(EXAMPLES / "rocm.yaml")
    assert (suite.frameworks, suite.device, set(suite.interpreters)) == (("pytorch", "jax"), "cuda", {"pytorch", "jax"})
    assert "Nothing of it has run on an AMD GPU" in (EXAMPLES / "rocm.yaml").read_text()
