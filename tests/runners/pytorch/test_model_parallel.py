"""Strategies that divide the network train what one device trains, and send what the model says."""

import pytest
from pydantic import ConfigDict

import networks
from harness.environments import recipes
from harness.workers import answers
from harness.workers.ranks import Launch, Ranks

PARALLEL = recipes.load("pytorch").parallel


class Sent(answers.Answer):
    """What the worker of these tests alone answers."""

    model_config = ConfigDict(extra="allow")


@pytest.fixture(scope="module", params=[3])
def sent(request, interpreter_of, tmp_path_factory):
    ranks = request.param
    variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    log = tmp_path_factory.mktemp("ranks") / "log"
    with pytest.MonkeyPatch.context() as patch, Ranks(
            Launch(PARALLEL, ranks), interpreter_of("pytorch"),
            "tests.faults.pytorch.model_parallel", log, variables) as worker:
        patch.setattr(answers, "ANSWERS", {**answers.ANSWERS, "sent": Sent})
        worker.ask("hello", 300)

        def ask(network, **task):
            return ranks, worker.ask("sent", 120, network=networks.get(network).to_json(), batch=4,
                              ranks=ranks, **task)

        yield ask


@pytest.mark.parametrize("network", ["tiny_fcn", "tiny_gpt"])
@pytest.mark.parametrize("precision",["fp32","bf16"])
@pytest.mark.parametrize("s",["tensor","pipeline_gpipe"])
def test_it(sent,s,network,precision):
        try: print("RESULT",s,network,precision,sent(network,strategy=s,precision=precision))
        except Exception as e:
            print("ERR",e); raise
