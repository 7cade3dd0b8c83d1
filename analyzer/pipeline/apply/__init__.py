"""A plan applied: a model that ONNX Runtime runs as planned, and what shows that it does."""
