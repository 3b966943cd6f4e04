"""Gradients leave while the compiled backward pass still runs, piece by piece."""

import json
import subprocess
from pathlib import Path

import networks

ROOT = Path(__file__).parents[3]
# One rank, so its hooks run as on several; TorchInductor itself is not needed to see the order.
SENDING = """
import json, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile
from runners.pytorch.layers import Net

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch._dynamo.config.optimize_ddp = False
network, least = json.loads(sys.argv[1]), json.loads(sys.argv[2])
replica = DistributedDataParallel(Net(network, least), static_graph=True, bucket_cap_mb=1e-4)
mean_loss = torch.compile(lambda inputs: replica(inputs).square().mean(), backend="aot_eager")
inputs = torch.ones(2, *network["input_shape"])
for _ in range(3):
    mean_loss(inputs).backward()
with profile() as recorded:
    mean_loss(inputs).backward()
kinds = {"c10d::allreduce_": "sends", "CompiledFunctionBackward": "computes"}
events = sorted(recorded.events(), key=lambda event: event.time_range.start)
print(json.dumps([kinds[event.name] for event in events if event.name in kinds]))
"""
NAMING = """
import json, sys
from runners.pytorch.layers import Net, pieces
print(json.dumps(pieces(Net(json.loads(sys.argv[1])).parts, json.loads(sys.argv[2]))))
"""


def told(interpreter, script, network, least):
    done = subprocess.run([interpreter, "-c", script, json.dumps(network), json.dumps(least)], cwd=ROOT, check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_compiled_backward_pass_in_pieces_sends_before_its_end(interpreter_of):
    network = networks.get("tiny_fcn").to_json()
    whole = told(interpreter_of("pytorch"), SENDING, network, None)
    assert "computes" not in whole[whole.index("sends"):]
    in_pieces = told(interpreter_of("pytorch"), SENDING, network, 64)
    assert "computes" in in_pieces[in_pieces.index("sends"):]


def test_a_piece_starts_where_25_mib_of_gradients_are_ready(interpreter_of):
    network = networks.get("alexnet").to_json()
    # 83 MB of dense2 and dense3, then 151 MB of dense1; all convolutions have 10 MB.
    assert told(interpreter_of("pytorch"), NAMING, network, 25 * 2**20) == ["dense2", "dense1"]


def test_a_tied_heads_gradients_count_where_the_backward_pass_completes_them(interpreter_of):
    network = networks.get("gpt2_small").to_json()
    # The head shares the table of words, 154 MB, with the first layer.
    starts = told(interpreter_of("pytorch"), NAMING, network, 100 * 2**20)
    assert len(starts) == 3
    assert all(start.startswith("dense") for start in starts)
