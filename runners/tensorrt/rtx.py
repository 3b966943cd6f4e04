"""TensorRT for RTX: the same interface under another name, for GeForce and RTX GPUs."""

from runners.inference import Inference
from runners.tensorrt import inference


def session():
    return Inference(TensorRtForRtx)


class TensorRtForRtx(inference.TensorRt):
    LIBRARY = "tensorrt_rtx"
