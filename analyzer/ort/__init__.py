"""What ONNX Runtime would do with a graph, worked out without running it."""
