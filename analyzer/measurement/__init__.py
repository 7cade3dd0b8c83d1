"""Running a model under ONNX Runtime and timing it; the only user of onnxruntime at run time."""
