"""Counting elementwise operators: 1 FLOP an output element and pass, transcendental functions too.

A composite is the sum of the passes that its definition names, so that one written out in small operators
costs the same: Gelu is Div, Erf, Add, Mul, Mul.
"""

from __future__ import annotations

from analyzer.costs.cost import Cost, cost, elements, out
from analyzer.costs.families.per_element import CONTRIB, per_output
from analyzer.costs.registry import rule
from analyzer.graph import Node

_ONE_PASS = """
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Cos Cosh
Div Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Mod Mul Neg Not Or Pow
Reciprocal Relu Round Sigmoid Sign Sin Sinh Sqrt Sub Tan Tanh ThresholdedRelu Where Xor
"""
ONE_PASS = tuple(_ONE_PASS.split())

COMPOSITES = {
    "Celu": (4, "divide, exp, subtract and multiply"),
    "Elu": (3, "exp, subtract, multiply"),
    "HardSigmoid": (4, "multiply, add, maximum, minimum"),
    "HardSwish": (5, "multiply, add, maximum, minimum, multiply"),
    "LeakyRelu": (2, "compare, multiply"),
    "Mish": (5, "exp, add, log, tanh, multiply"),
    "PRelu": (2, "compare, multiply"),
    "Selu": (4, "exp, subtract, multiply, multiply"),
    "Shrink": (2, "compare, add the bias"),
    "Softplus": (3, "exp, add, log"),
    "Softsign": (3, "absolute value, add, divide"),
    # Operators that ONNX Runtime keeps from early opsets.
    "Affine": (2, "multiply, add"),
    "ImageScaler": (2, "multiply, add"),
    "ParametricSoftplus": (5, "multiply, exp, add, log, multiply"),
    "Scale": (1, "multiply"),
    "ScaledTanh": (3, "multiply, tanh, multiply"),
}

CONTRIB_COMPOSITES = {
    "BiasAdd": (2, "add the bias, add the skip"),
    "BiasGelu": (6, "add the bias; Gelu is divide, erf, add, multiply, multiply"),
    "BiasSplitGelu": (
        7,
        "two biases; Gelu is divide, erf, add, multiply, multiply; the gate's product is in it",
    ),
    "ComplexMul": (3, "a complex product is 4 multiplications and 2 additions for 2 outputs"),
    "ComplexMulConj": (3, "a complex product is 4 multiplications and 2 additions for 2 outputs"),
    "Gelu": (5, "divide, erf, add, multiply, multiply"),
    "QuickGelu": (3, "multiply, sigmoid, multiply"),
    "GatedAdd": (2, "multiply by the gate, add"),
    "ScaledSiLU": (3, "multiply, sigmoid, multiply"),
}

# As written out in small operators; the tanh form's are named at ``gelu``.
GELU_ERF = 5
GELU_TANH = 8

per_output(dict.fromkeys(ONE_PASS, (1, "one pass")), family=__name__)
per_output(COMPOSITES, family=__name__)
per_output(CONTRIB_COMPOSITES, family=__name__, domain=CONTRIB)


@rule("Sum", "Max", "Min")
def fold(node: Node) -> Cost:
    """(inputs - 1) * outputs: each further input is folded in."""
    return cost(node, flops=(sum(1 for _ in node.present_inputs) - 1) * out(node))


@rule("Mean")
def mean(node: Node) -> Cost:
    """Inputs * outputs: additions and one division."""
    return cost(node, flops=sum(1 for _ in node.present_inputs) * out(node))


@rule("Clip")
def clip(node: Node) -> Cost:
    """Outputs * (1 for each bound that is given).

    Before opset 6 both bounds are attributes with defaults, from opset 11 on they are optional inputs.
    """
    # An input of opset 11 that is left out is no bound; an attribute of opset 6 that is left out is one that
    # no finite number passes, so that it is not counted either.
    if node.version >= 11:
        bounds = sum(1 for position in (1, 2) if node.input(position) is not None)
    else:
        bounds = sum(1 for name in ("min", "max") if name in node.attributes)
    return cost(node, flops=bounds * out(node))


@rule("Gelu")
def gelu(node: Node) -> Cost:
    """5 * outputs (divide, erf, add, two products), or 8 * outputs with approximate="tanh".

    The tanh form is 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))): power, product, sum, product, tanh, sum, two
    products.
    """
    each = GELU_TANH if node.attributes.get("approximate") == "tanh" else GELU_ERF
    return cost(node, flops=each * out(node))


@rule("FastGelu", domain=CONTRIB)
def fast_gelu(node: Node) -> Cost:
    """8 * outputs for the tanh form of Gelu, and 1 * outputs for a bias."""
    return cost(node, flops=(GELU_TANH + (node.input(1) is not None)) * out(node))


@rule("Swish")
def swish(node: Node) -> Cost:
    """2 * outputs (sigmoid, product), 3 where alpha is not 1."""
    return cost(node, flops=(2 + (node.attributes.get("alpha", 1.0) != 1.0)) * out(node))


@rule("SwiGLU")
def swiglu(node: Node) -> Cost:
    """3 * outputs (sigmoid and two products), 4 where alpha is not 1."""
    return cost(node, flops=(3 + (node.attributes.get("alpha", 1.0) != 1.0)) * out(node))


@rule("BiasDropout", "BitmaskBiasDropout", domain=CONTRIB)
def bias_dropout(node: Node) -> Cost:
    """Outputs for the bias, outputs for a residual, 2 * outputs in training for mask and scale."""
    # Data, bias, residual, ratio, training_mode; a flag that only the run knows counts as training.
    flag = node.input(4)
    trains = flag is not None and (flag.value is None or bool(flag.value.reshape(-1)[0]))
    return cost(node, flops=(1 + (node.input(2) is not None) + 2 * trains) * out(node))


@rule("LinearAttentionGate", domain=CONTRIB)
def linear_attention_gate(node: Node) -> Cost:
    """5 * decays (bias, softplus of 3, scale) and 1 * betas (sigmoid)."""
    beta = node.output(1)
    return cost(node, flops=5 * out(node) + (elements(beta) if beta is not None else 0))


_ACTIVATIONS = {name.lower(): each for name, (each, _) in COMPOSITES.items()}
_ACTIVATIONS |= dict.fromkeys(map(str.lower, ONE_PASS), 1)
_ACTIVATIONS |= {"clip": 2, "silu": 2, "swish": 2, "quickgelu": 3, "identity": 0}
_ACTIVATIONS |= {"gelu": GELU_ERF, "fastgelu": GELU_TANH}


def activation(name: str) -> int:
    """FLOPs an element of an activation that another operator applies; 0 for none."""
    if name and name.lower() not in _ACTIVATIONS:
        raise ValueError(f"activation '{name}' is not known")
    return _ACTIVATIONS[name.lower()] if name else 0
