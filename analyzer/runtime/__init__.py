"""What ONNX Runtime does: placement, groups, measurements."""
