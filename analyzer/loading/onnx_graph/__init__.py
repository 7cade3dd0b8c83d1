"""Loading, last step: an ONNX model, whoever wrote it -> a ``Graph`` with every shape that can be known."""
