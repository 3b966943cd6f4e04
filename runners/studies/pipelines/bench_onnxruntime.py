"""The pipelines study in ONNX Runtime: NVIDIA's DALI prepares what ONNX Runtime answers.

DALI runs graphs, so each stage is a graph of its own; together they are the pipeline that DALI's
documentation shows. Its graphs here run on processors.
"""

import numpy as np

from runners.onnxruntime.inference import OnnxRuntime
from runners.studies.pipelines import bench
from runners.studies.pipelines.flow import Loader
from runners.studies.pipelines.loaders import in_batches, library


class Dali(Loader):
    """Batches are lists of tensors in host memory; `antialias` widens the linear filter."""

    def __init__(self, source):
        super().__init__(source)
        fn, types = library("nvidia.dali.fn"), library("nvidia.dali.types")
        linear = {"interp_type": types.DALIInterpType.INTERP_LINEAR, "antialias": True}
        height, width = source.size
        scores = {"mean": [255.0 * each for each in source.mean],
                  "std": [255.0 * each for each in source.deviation],
                  "dtype": types.DALIDataType.FLOAT, "output_layout": "CHW"}
        self.decoding = self.graph(fn, lambda data: fn.decoders.image(data, device="cpu"), None)
        self.resizing = self.graph(fn, lambda data: fn.resize(
            data, resize_x=width, resize_y=height, **linear), "HWC")
        self.scoring = self.graph(fn, lambda data: fn.crop_mirror_normalize(data, **scores), "HWC")

    def graph(self, fn, operation, layout):
        """Build a graph of one operation on what it is fed."""
        pipeline = library("nvidia.dali.pipeline").Pipeline(
            self.source.batch, self.source.threads, None, prefetch_queue_depth=1)
        with pipeline:
            given = fn.external_source(name="given", device="cpu", layout=layout)
            pipeline.set_outputs(operation(given))
        pipeline.build()
        return pipeline

    def decode(self):
        for files in in_batches(self.source.files, self.source.batch):
            yield run(self.decoding, [np.fromfile(file, np.uint8) for file in files])

    def resize(self, frames):
        return run(self.resizing, frames)

    def normalise(self, frames):
        return np.ascontiguousarray(run(self.scoring, frames).as_array())

    def pixels(self, frames):
        return frames.as_array()


def run(pipeline, batch):
    """Feed a graph one batch and return what it makes of it, in memory of its own."""
    pipeline.feed_input("given", batch)
    [found] = pipeline.run()
    return type(found)(np.array(found.as_array()), layout=found.layout())


class Bench(bench.PipelineBench):
    ENGINE = OnnxRuntime
    LOADERS = {"dali": Dali}
