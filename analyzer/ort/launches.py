"""How many kernels an executed node launches on a GPU."""

from __future__ import annotations

# Counted on the CUDA provider of ONNX Runtime 1.31 with stand-ins for the CUDA libraries, which count what is
# handed to the device (`tests/judge`): what is not named launches one. Copies on the device are not counted.
_LAUNCHES = {
    "Reshape": 0,
    "Flatten": 0,
    "Squeeze": 0,
    "Unsqueeze": 0,
    "Identity": 0,
    "Shape": 0,
    "Size": 0,
    "Dropout": 0,
    "Loop": 0,
    "If": 0,
    "Scan": 0,
    "ReduceMean": 2,
    "ReduceSumSquare": 2,
    "Resize": 2,
    "GatherND": 2,
    "Attention": 3,
}


def launches(op_type: str, *, inputs: int = 0) -> int:
    """Kernels that one execution launches; ``inputs`` counts the present ones.

    A ``Gemm`` with a bias first writes the bias into its result; a ``Conv`` with a bias adds it afterwards.
    """
    if op_type in ("Gemm", "Conv") and inputs >= 3:
        return 2
    return _LAUNCHES.get(op_type, 1)
