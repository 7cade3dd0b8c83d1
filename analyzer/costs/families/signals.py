"""Counting signal processing and random numbers."""

from __future__ import annotations

from math import ceil, log2, prod

from analyzer.costs.cost import Cost, cost, dims, elements, out, value
from analyzer.costs.families.per_element import CONTRIB, per_input, per_output
from analyzer.costs.registry import rule
from analyzer.graph import Node

_FFT = "a fast Fourier transform of 5 n log2(n) FLOPs, half of it for real values"

per_output(
    {
        "HannWindow": (4, "multiply, cosine, multiply, subtract"),
        "HammingWindow": (4, "multiply, cosine, multiply, subtract"),
        "BlackmanWindow": (7, "two cosines, three products, two sums"),
        "MelWeightMatrix": (5, "two differences, two quotients, the minimum"),
        "RandomNormal": (1, "one draw"),
        "RandomNormalLike": (1, "one draw"),
        "RandomUniform": (1, "one draw"),
        "RandomUniformLike": (1, "one draw"),
        "Bernoulli": (2, "one draw, one comparison"),
    },
    family=__name__,
)
per_input(
    {"DynamicTimeWarping": (3, "two comparisons and a sum for each cell.")}, family=__name__, domain=CONTRIB
)


def transform(points: int, *, real: bool) -> int:
    """FLOPs of one fast Fourier transform."""
    whole = 5 * points * ceil(log2(points)) if points > 1 else 0
    return whole // 2 if real else whole


@rule("DFT", assumes=_FFT)
def dft(node: Node) -> Cost:
    """5 * n * log2(n) a transform, half of it for real input or result; n is dft_length or the axis."""
    shape = dims(node.inputs[0])
    axes = value(node.input(2))
    axis = int(axes[0]) if axes else node.attributes.get("axis", 1 if node.version < 20 else -2)
    # Opset 17 has dft_length as an input already, but the axis as an attribute.
    length = value(node.input(1))
    points = int(length[0]) if length else shape[axis]
    transforms = prod(shape[:-1]) // max(shape[axis], 1)
    real = shape[-1] == 1 or bool(node.attributes.get("onesided", 0))
    return cost(node, flops=transforms * transform(points, real=real))


@rule("STFT", assumes=_FFT)
def stft(node: Node) -> Cost:
    """Frames * (n for the window, and one transform of n points)."""
    # Signal, frame_step, window, frame_length.
    signal, frame = dims(node.inputs[0]), value(node.input(3))
    window = node.input(2)
    bins = dims(node.outputs[0])[2]
    if frame:
        points = int(frame[0])
    elif window is not None:
        points = dims(window)[0]
    else:
        # One-sided: the bins of a real transform of n points are n / 2 + 1.
        points = 2 * (bins - 1) if node.attributes.get("onesided", 1) else bins
    frames = prod(dims(node.outputs[0])[:2])
    real = len(signal) < 3 or signal[-1] == 1
    weighted = points * (1 if real else 2) if window is not None else 0
    return cost(node, flops=frames * (weighted + transform(points, real=real)))


@rule("Rfft", "Irfft", domain=CONTRIB, assumes=_FFT)
def rfft(node: Node) -> Cost:
    """2.5 * n * log2(n) a transform of n real points; n is the product of signal_ndim axes."""
    forward = node.op_type == "Rfft"
    shape = dims(node.inputs[0] if forward else node.outputs[0])
    points = prod(shape[-node.attributes.get("signal_ndim", 1) :])
    return cost(node, flops=prod(shape) // max(points, 1) * transform(points, real=True))


@rule("Multinomial")
def multinomial(node: Node) -> Cost:
    """3 * inputs (maximum, exp, sum) and, for each sample, a draw and a search of log2(classes)."""
    classes = dims(node.inputs[0])[-1]
    return cost(node, flops=3 * elements(node.inputs[0]) + out(node) * (1 + ceil(log2(max(classes, 1)))))
