"""OpenVINO, which runs trained networks from an ONNX file."""
