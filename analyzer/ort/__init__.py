"""Work out how ONNX Runtime would execute a graph, without running it."""
