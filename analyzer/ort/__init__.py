"""What ONNX Runtime would do with a graph: kernels, placement, fusions, copies. Nothing is run to find out."""
