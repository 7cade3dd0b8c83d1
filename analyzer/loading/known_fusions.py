"""A model file -> the same with patterns of operators as the one operator that ONNX Runtime has for each.

onnxscript's rules know the graphs of PyTorch's exporter (attention from ``scaled_dot_product_attention``,
rotary embeddings, RMS norms), which ONNX Runtime's own optimiser does not fuse. Weights stay in their file:
they are mapped, and written one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

WEIGHTS = "weights.bin"
# Smaller ones stay in the model's file: shapes, axes, scalars.
_STORED_APART_BYTES = 1024


def restore(model: Path, folder: Path) -> Mapping[str, int]:
    """Writes the rewritten model into a folder, under its own name.

    Args:
        model: A file of our own, with its weights beside it.
        folder: An empty one.

    Returns:
        How often each rule was applied; those that were not are left out.
    """
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    rewritten, counts = optimize_for_ort(onnx_ir.load(model))
    onnx_ir.save(
        rewritten, folder / model.name, external_data=WEIGHTS, size_threshold_bytes=_STORED_APART_BYTES
    )
    return {rule: count for rule, count in counts.items() if count}
