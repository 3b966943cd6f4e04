"""PyTorch's attention with four planted faults, each under the name of an implementation."""

import torch
import torch.nn.functional as F

from runners.studies.attention import bench_pytorch


class Bench(bench_pytorch.Bench):
    IMPLEMENTATIONS = ("math", "shifted mask", "no scale", "no dk", "flash")

    def attention(self, name, operands, point):
        if name in ("math", "flash"):
            # Flash is silently another one, as JAX takes where none is named.
            return super().attention("math", operands, point)
        *inputs, upstream = (tensor.detach() for tensor in operands)
        length = point["length"]
        seen = torch.ones(length, length, dtype=torch.bool).tril(int(name == "shifted mask"))
        scale = 1.0 if name == "no scale" else None

        def compute():
            q, k, v = (tensor.clone().requires_grad_() for tensor in inputs)
            output = F.scaled_dot_product_attention(q, k, v, seen, scale=scale)
            dq, dk, dv = torch.autograd.grad(output, (q, k, v), upstream)
            return output, dq, torch.zeros_like(dk) if name == "no dk" else dk, dv

        return compute
