"""How many kernels an executed node launches on a GPU, by its type."""

from __future__ import annotations

from analyzer.operators import SHAPE_READERS, VIEWS

# Counted on the CUDA provider of ONNX Runtime 1.31 with stand-ins for the CUDA libraries, which count what is
# handed to the device (`tests/judge`): what is not named launches one. Copies on the device are not counted.
_LAUNCHES = {
    **dict.fromkeys(VIEWS | SHAPE_READERS, 0),
    "Dropout": 0,  # a copy
    "Loop": 0,
    "If": 0,
    "Scan": 0,
    "ReduceMean": 2,
    "ReduceSumSquare": 2,
    "Resize": 2,
    "GatherND": 2,
    "Attention": 3,
}
# With a third input, a bias, one kernel more.
BIASED = frozenset({"Gemm", "Conv", "ConvTranspose"})


def launches(op_type: str, *, inputs: int = 0) -> int:
    """Kernels that one execution launches; ``inputs`` counts the present ones.

    A ``Gemm`` with a bias first writes the bias into its result; a ``Conv`` with a bias adds it afterwards. A
    ``Dropout`` that is told whether it trains is taken for one that does.
    """
    if op_type == "Dropout" and inputs >= 3:
        return 1
    if op_type in BIASED and inputs >= 3:
        return 2
    return _LAUNCHES.get(op_type, 1)
