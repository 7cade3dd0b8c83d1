"""Operator times on a GPU: what it recorded, joined to ONNX Runtime's nodes."""
