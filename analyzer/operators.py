"""Facts about operators, once: domains, views, what does no work, what draws random numbers or is in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from analyzer.graph import DEFAULT_DOMAIN, Node

CONTRIB_DOMAIN = "com.microsoft"
CLASSICAL_DOMAIN = "ai.onnx.ml"
RECURRENT = ("LSTM", "GRU", "RNN")
TREES = "__trees"
"""The attribute that stands for the lists of a large ensemble of trees; its text is that of ``TreeSums``."""


class TreeSums(NamedTuple):
    """The sums over an ensemble of trees.

    Attributes:
        trees: How many there are.
        depth: The sum over trees of the mean depth of their leaves.
        additions: Weights of a leaf, summed over trees.
        nodes: Leaves included.
        learnt: Thresholds and weights.
        digest: Of the lists.
    """

    trees: int
    depth: float
    additions: float
    nodes: int
    learnt: int
    digest: str = ""

    def text(self) -> str:
        """Write it as the value of the attribute."""
        return " ".join(map(repr, self[:5])) + f" {self.digest}"

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> TreeSums | None:
        """Return the sums that an operator's attributes hold; None where it has its lists."""
        text = attributes.get(TREES)
        if not isinstance(text, str):
            return None
        trees, depth, additions, nodes, learnt, digest = text.split(" ")
        return cls(int(trees), float(depth), float(additions), int(nodes), int(learnt), digest)


"""ONNX Runtime's own operators."""

NCHWC_DOMAIN = "com.microsoft.nchwc"
"""Kernels on images in blocks of channels, which its CPU sessions put in (``core/graph/constants.h``)."""

NHWC_DOMAIN = "com.ms.internal.nhwc"
"""Kernels on images with channels last, which its CUDA sessions may put in."""

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "BitCast"})
"""Their output is their first input under another shape or type: by the operators' specification no element
changes, and ONNX Runtime's kernels give the same memory (``Alias(0, 0)`` in ``core/providers/cpu/tensor``)."""

CONTRIB_VIEWS = frozenset({"ExpandDims"})

SHAPE_READERS = frozenset({"Shape", "Size"})
"""They read no element; on a GPU they run without a kernel."""

ON_TEXTS = frozenset({"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "Tokenizer"})
"""Operators that go through the bytes of their texts."""

INTEGER_PRODUCTS = frozenset(
    {
        *("QLinearMatMul", "QLinearConv", "QGemm", "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat"),
        *("DynamicQuantizeMatMul", "MatMulNBits", "QAttention", "DynamicQuantizeLSTM"),
    }
)
"""Types of executed nodes that multiply integers."""

_LITERAL = "Constant"  # becomes an initializer when a session is made (onnxruntime/core/graph/graph.cc)

# ONNX Runtime's list lacks Bernoulli, which ONNX defines as a function of RandomUniformLike
# (onnx/defs/generator/defs.cc).
RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
"""They draw anew at each run, whatever their inputs: never folded, never merged with an equal one
(``IsOperationDeterministic`` in ``core/optimizer/utils.cc``)."""


_IN_PLACE = """
Celu Clip Elu HardSigmoid LeakyRelu LogSoftmax Relu Selu Shrink Sigmoid Softmax Softplus Softsign Tanh
ThresholdedRelu
"""
IN_PLACE = frozenset(_IN_PLACE.split())
"""Operators whose output takes the memory of their first input where nothing reads that afterwards.

As the arena of ONNX Runtime 1.31.1's CPU provider shows (``MayInplace`` where its kernels are registered);
arithmetic (Add, Mul, Sqrt) is not among them.
"""

_IN_PLACE_ON_CUDA = "Elu HardSigmoid LeakyRelu Relu Selu Sigmoid Softplus Softsign Tanh ThresholdedRelu"
IN_PLACE_ON_CUDA = frozenset(_IN_PLACE_ON_CUDA.split())
"""The same on the CUDA provider, as its arena shows where stand-ins take the place of CUDA's libraries."""


def in_training(node: Node) -> bool:
    """Return whether a Dropout or BatchNormalization runs as in training: its flag is set, or not known."""
    if node.op_type == "BatchNormalization":
        return bool(node.attributes.get("training_mode", 0))
    # Opset 12 made it an input, so that it may be known at run time alone.
    flag = node.input(2)
    return flag is not None and (flag.value is None or bool(flag.value.reshape(-1)[0]))


def is_view(node: Node) -> bool:
    """Return whether a node's first output is its first input's own memory; a Dropout's is, but in training."""
    if node.domain != DEFAULT_DOMAIN:
        return node.domain == CONTRIB_DOMAIN and node.op_type in CONTRIB_VIEWS
    # At inference a Dropout is the identity; ONNX Runtime removes it (core/optimizer/dropout_elimination.cc).
    return node.op_type in VIEWS or (node.op_type == "Dropout" and not in_training(node))


def does_no_work(node: Node) -> bool:
    """Return whether a node runs no kernel: a view, a question for a shape, a literal."""
    if is_view(node):
        return True
    return node.domain == DEFAULT_DOMAIN and (node.op_type in SHAPE_READERS or node.op_type == _LITERAL)


# ``skip_dequantize_linear`` of onnxruntime/core/optimizer/constant_folding.cc: weights stay packed, for the
# kernels that read them so.
NEVER_FOLDED = RANDOM | {"DequantizeLinear"}
"""What runs each time although all that it reads is known."""


def draws_random_numbers(node: Node) -> bool:
    """Return whether two runs of a node on equal inputs may differ."""
    if node.domain != DEFAULT_DOMAIN:
        return False
    return node.op_type in RANDOM or (node.op_type == "Dropout" and in_training(node))
