"""Generating models that are graphs: `.onnx` files, folders of ONNX Runtime GenAI, exports of modules."""
