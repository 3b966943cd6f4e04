"""ONNX Runtime, which runs trained networks from an ONNX file."""
