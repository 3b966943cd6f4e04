"""Networks as ONNX files, for the engines that read one."""
