"""One training step of a PyTorch model as an ordinary ONNX graph: forward, loss, backward, optimizer."""
