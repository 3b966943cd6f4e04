"""Pipeline parallelism by PyTorch's `torch.distributed.pipelining`: a stage of layers on each rank.

The global batch goes through in micro-batches, whose gradients are averaged. GPipe (Huang et al.,
arXiv 1811.06965) runs all forward passes first; 1F1B (Narayanan et al., arXiv 1806.03377) lets each
stage alternate, so fewer activations wait. First and last stage each hold a tied table, and add
their gradients up.
"""

import contextlib
import inspect

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from runners.protocol import Unsupported
from runners.pytorch import compiling
from runners.pytorch.layers import written
from runners.pytorch.model_parallel import divide
from runners.pytorch.model_parallel.base import ModelParallel
from runners.pytorch.model_parallel.working import Working


class Pipeline(ModelParallel):
    whole_batch = True
    # A class of torch.distributed.pipelining.
    schedule = None
    # The mean of the micro-batches' gradients, not their sum.
    scale_grads = True

    def __init__(self, model, task):
        super().__init__(task)
        network, self.rank, self.ranks = task.network, task.rank, task.ranks
        self.device = next(model.parameters()).device
        self.stages = divide.stages(network, task.ranks)
        self.micro_batches = divide.micro_batches(task.batch * task.devices, task.ranks)
        self.shapes = {f"{layer['name']}.{name}": shape for layer in network["layers"]
                       for name, shape in layer["parameters"].items()}
        self.owners = {name: stage for stage, names in enumerate(self.stages) for name in names}
        self.tables = {layer["name"]: layer["attributes"]["tied"] for layer in network["layers"]
                       if "tied" in layer["attributes"]}
        for head, table in self.tables.items():
            if {self.owners[table], self.owners[head]} - {0, task.ranks - 1}:
                raise Unsupported(f"strategy '{task.strategy}': {table} and its tied head {head} "
                                  "are not in the first and the last stage")
        self.ends = dist.new_group([0, task.ranks - 1])
        self.keep_own(model)
        own = Stage(model, task)
        if task.tuning == "compiled":
            own = compiling.compiled(own, task.device)
        stage = PipelineStage(own, task.rank, task.ranks, self.device)
        self.working = Working(self.device)
        # The schedule waits for other ranks between these calls, never within one.
        for name in ("forward_one_chunk", "backward_one_chunk"):
            setattr(stage, name, self.working.noting(getattr(stage, name)))
        self.run = self.schedule(stage, self.micro_batches, loss_fn=self.working.noting(self.loss),
                                 scale_grads=self.scale_grads)
        # Else the last stage keeps all logits. Older releases lack the option and keep them.
        known = inspect.signature(self.run.step).parameters
        self.options = {"return_outputs": False} if "return_outputs" in known else {}
        self.precision = task.precision
        self.model = model

    def keep_own(self, model):
        """Delete other stages from the model; the first layer reads the previous stage's output."""
        own = self.stages[self.rank]
        before = self.stages[self.rank - 1][-1] if self.rank else "input"

        def source(name):
            return "input" if name == before else name

        model.wiring = {name: [source(each) for each in inputs]
                        for name, inputs in model.wiring.items() if name in own}
        model.graph = written(model.wiring)
        for head, table in self.tables.items():
            if head in own and table not in own:
                # A copy of its own.
                model.parts[head].weight = nn.Parameter(model.parts[table].weight.detach().clone())
        for name in [name for name in model.parts if name not in own]:
            del model.parts[name]

    def settings(self):
        return [f"{self.micro_batches} micro-batches",
                f"stages that end with {divide.named(self.stages)}"]

    def named(self, names):
        """Return the modules' names of what this stage holds, by our names."""
        found = {ours: theirs for ours, theirs in names.items()
                 if ours.partition(".")[0] in self.stages[self.rank]}
        for head, table in self.tables.items():
            if head in self.stages[self.rank]:
                found.setdefault(f"{table}.weight", f"parts.{head}.weight")
        return found

    def differentiate(self, loss_of, scaler, inputs, targets):
        losses = []
        self.working.begin_step()
        if self.rank == 0:
            self.run.step(inputs, **self.options)
        elif self.rank < self.ranks - 1:
            self.run.step(**self.options)
        else:
            self.run.step(target=targets, losses=losses, **self.options)
        self._add_tables_up()
        return torch.stack(losses).mean().detach() if losses else torch.zeros(
            (), device=self.device)

    def loss(self, logits, targets):
        """Return the mean loss of a micro-batch: logits (B, K) or (B, T, K)."""
        with autocast(self.device, self.precision):
            return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())

    def everybodys(self, loss):
        """Return the last stage's loss."""
        loss = loss.detach().clone()
        dist.broadcast(loss, self.ranks - 1)
        return loss

    def whole(self, parameters):
        """Return every parameter: this stage's own, and those of the others by broadcast."""
        found = {}
        for name, shape in self.shapes.items():
            owner = self.owners[name.partition(".")[0]]
            sent = torch.empty(tuple(shape), device=self.device)
            if self.rank == owner:
                sent.copy_(parameters[name].detach())
            dist.broadcast(sent, owner)
            found[name] = parameters.get(name, sent)
        return found

    def _add_tables_up(self):
        for head, table in self.tables.items():
            own = self.stages[self.rank]
            if (head in own) != (table in own):
                weight = self.model.parts[head if head in own else table].weight
                dist.all_reduce(weight.grad, group=self.ends)


class GPipe(Pipeline):
    schedule = ScheduleGPipe


class OneForwardOneBackward(Pipeline):
    schedule = Schedule1F1B


class Stage(nn.Module):
    """A stage under the precision's autocast: the schedule calls it outside of any."""

    def __init__(self, model, task):
        super().__init__()
        self.model, self.precision = model, task.precision

    def forward(self, x):
        with autocast(x.device, self.precision):
            return self.model(x)


def autocast(device, precision):
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()
