"""How many kernels an executed node launches on a GPU."""

from __future__ import annotations

# Read off the CUDA provider of ONNX Runtime 1.31 with logging stand-ins for the CUDA libraries: what is not
# named launches one.
_LAUNCHES = {
    "Reshape": 0,
    "Flatten": 0,
    "Squeeze": 0,
    "Unsqueeze": 0,
    "Identity": 0,
    "Shape": 0,
    "Size": 0,
    "ReduceMean": 2,
    "Attention": 3,
}


def launches(op_type: str, *, inputs: int = 0) -> int:
    """Kernels that one execution launches; ``inputs`` counts the present ones.

    A ``Gemm`` with a bias first writes the bias into its result; a ``Conv`` with a bias adds it afterwards.
    """
    if op_type in ("Gemm", "Conv") and inputs >= 3:
        return 2
    return _LAUNCHES.get(op_type, 1)
