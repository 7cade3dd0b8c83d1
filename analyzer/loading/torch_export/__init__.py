"""Loading, step two: a PyTorch model becomes an ONNX model without weights, each node with its origin."""
