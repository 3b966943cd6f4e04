"""The layers study in PyTorch: eager functions of `torch.nn.functional`; NHWC is channels-last."""

import torch
import torch.nn.functional as F

from runners.protocol import Unsupported
from runners.pytorch.runner import Runner
from runners.studies.layers import bench, reference

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def pooled(x, kind, p):
    return kind(x, p["kernel"], p["stride"])


def ctc(t, p):
    length, batch = t["x"].shape[:2]
    lengths = torch.full((batch,), length), torch.full((batch,), t["labels"].shape[1])
    return F.ctc_loss(t["x"].log_softmax(-1), t["labels"], *lengths, reduction="none")


def hierarchical_softmax(t, p):
    side = len(t["clusters"])
    group, word = t["labels"] // side, t["labels"] % side
    inner = torch.bmm(t["words"][group], t["x"].unsqueeze(2)).squeeze(2)  # (B, K / G)
    return (F.cross_entropy(t["x"] @ t["clusters"].t(), group, reduction="none")
            + F.cross_entropy(inner, word, reduction="none"))


OPERATIONS = {
    "conv1d": lambda t, p: F.conv1d(t["x"], t["weight"], padding=p["kernel"] // 2),
    "conv3d": lambda t, p: F.conv3d(t["x"], t["weight"], padding=p["kernel"] // 2),
    "max_pool": lambda t, p: pooled(t["x"], F.max_pool2d, p),
    "avg_pool": lambda t, p: pooled(t["x"], F.avg_pool2d, p),
    "lp_pool": lambda t, p: F.lp_pool2d(t["x"], 2.0, p["kernel"], p["stride"]),
    "lrn": lambda t, p: F.local_response_norm(t["x"], reference.LRN_SIZE, reference.LRN_ALPHA,
                                              reference.LRN_BETA, reference.LRN_K),
    "dropout": lambda t, p: F.dropout(t["x"], p["rate"]),
    "softmax": lambda t, p: F.softmax(t["x"], -1),
    "batch_norm": lambda t, p: F.batch_norm(t["x"], None, None, t["scale"], t["shift"],
                                            training=True, eps=reference.EPSILON),
    "ctc": ctc,
    "embedding": lambda t, p: F.embedding(t["x"], t["table"]),
    "hierarchical_softmax": hierarchical_softmax,
}


class Bench(bench.LayerBench):
    OPERATIONS = OPERATIONS
    TRANSPOSED = False
    describe = staticmethod(Runner.describe)

    def __init__(self, task):
        super().__init__(task)
        torch.set_num_threads(task.threads)
        torch.backends.cudnn.allow_tf32 = False

    def place(self, name, array, point):
        tensor = torch.from_numpy(array).to(self.task.device)
        tensor = tensor if tensor.is_floating_point() else tensor.long()
        if point["layout"] == "nhwc" and tensor.ndim > 2:
            if tensor.ndim not in FORMATS:
                raise Unsupported("PyTorch has no channels-last format of three dimensions")
            tensor = tensor.to(memory_format=FORMATS[tensor.ndim])
        return tensor

    def layer(self, operation, tensors, names, upstream):
        wanted = [tensors[name].requires_grad_() for name in names]

        def forward():
            with torch.no_grad():
                return operation(tensors)

        def backward():
            output = operation(tensors)
            gradients = torch.autograd.grad(output, wanted, upstream)
            return output, dict(zip(names, gradients, strict=True))

        return forward, backward

    def wait(self, result):
        if self.task.device == "cuda":
            torch.cuda.synchronize()

    def numpy(self, tensor):
        return tensor.detach().cpu().numpy()
