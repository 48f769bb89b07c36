"""The embedder: the ONNX model, and the process it runs in."""
