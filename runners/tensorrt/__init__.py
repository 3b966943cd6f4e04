"""TensorRT and TensorRT for RTX: NVIDIA's compilers for inference, from an ONNX file."""
