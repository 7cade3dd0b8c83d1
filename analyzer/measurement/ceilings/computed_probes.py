"""Probes whose sizes or attributes are computed: convolutions and classical models; see ``probes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from analyzer.measurement.ceilings.probes import (
    BLOCKED,
    CLASSICAL,
    MICROSOFT,
    Probe,
    floats,
    integers,
    listed,
    tables,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvClass:
    """A kind of convolution: input and output channels, size, kernel, stride, groups; how it is executed."""

    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1
    group: int = 1
    rank: int = 2
    batch: int = 1
    op_type: str = "Conv"
    blocked: bool = True
    integers: tuple[str, ...] = ()


@cache
def conv_classes() -> Mapping[str, ConvClass]:
    """Return the kinds of convolutions by name."""
    return {name: ConvClass(**row) for name, row in tables()["convolutions"].items()}


def convolutions() -> Iterator[Probe]:
    """One convolution by class; the blocked layout first, the plain one where there is none."""
    for name, kind in conv_classes().items():
        if kind.blocked:
            yield _convolution(name, kind, BLOCKED)
        yield _convolution(name, kind, "")


def _convolution(name: str, kind: ConvClass, domain: str) -> Probe:
    transposed = kind.op_type == "ConvTranspose"
    pad = 0 if transposed else kind.kernel // 2
    size = kind.size * kind.stride if transposed else (kind.size + 2 * pad - kind.kernel) // kind.stride + 1
    per_output = kind.channels // kind.group * kind.kernel**kind.rank
    # A transposed convolution multiplies at each position of its input, an ordinary one of its output.
    positions = kind.size**kind.rank if transposed else size**kind.rank
    kernel = (kind.kernel,) * kind.rank
    weights = (kind.channels, kind.filters) if transposed else (kind.filters, kind.channels // kind.group)
    return Probe(
        key=f"conv.float32.t{{T}}.{name}",
        amount=2.0 * kind.batch * kind.filters * positions * per_output,
        per="rate",
        op_type=kind.op_type,
        domain=domain,
        inputs=(floats(kind.batch, kind.channels, *(kind.size,) * kind.rank), floats(*weights, *kernel)),
        constants=frozenset({1}),
        attributes={
            "kernel_shape": kernel,
            "strides": (kind.stride,) * kind.rank,
            "pads": (pad,) * 2 * kind.rank,
            "group": kind.group,
        },
    )


def integer_convolutions() -> Iterator[Probe]:
    """QLinearConv by class, channels last where this build has such a kernel: sessions prefer it."""
    for name, kind in conv_classes().items():
        for weights in kind.integers:
            yield _integer_convolution(name, kind, weights)


def _integer_convolution(name: str, kind: ConvClass, weights: str) -> Probe:
    import numpy as np

    pad = kind.kernel // 2
    size = (kind.size + 2 * pad - kind.kernel) // kind.stride + 1
    each = kind.channels // kind.group * kind.kernel**2
    scale, zero = np.array(0.02, np.float32), np.array(10, np.uint8)
    middle = 0 if weights == "int8" else 32
    return Probe(
        key=f"conv.u8{'s' if weights == 'int8' else 'u'}8.t{{T}}.{name}",
        amount=2.0 * kind.filters * size**2 * each,
        per="rate",
        op_type="QLinearConv",
        domain=MICROSOFT,
        inputs=(
            *(integers("uint8", 1, kind.size, kind.size, kind.channels), scale, zero),
            integers(weights, kind.filters, kind.channels // kind.group, kind.kernel, kind.kernel),
            # Weights without a sign have a zero point in the middle, which costs sums of the data.
            *(np.full(kind.filters, 0.02, np.float32), np.full(kind.filters, middle, weights)),
            *(scale, zero, np.zeros(kind.filters, np.int32)),
        ),
        constants=frozenset(range(1, 9)),
        attributes={
            "kernel_shape": (kind.kernel, kind.kernel),
            "strides": (kind.stride, kind.stride),
            "pads": (pad,) * 4,
            "group": kind.group,
            "channels_last": 1,
        },
    )


_TREES, _DEPTH, _FEATURES = 50, 6, 32
# Of thresholds so much wider than the features 21 % of all comparisons take the rarer side, as 16 to 32 % do in
# 48 trained ensembles (tests/benchmarks/deployed_trees.py): the processor foresees the others.
_THRESHOLDS = 1.3


def trees() -> Iterator[Probe]:
    """Time per comparison and, once a tree, addition: complete trees, numbered as heaps.

    The same rows come again and again, as in a measurement: of few rows the processor learns every branch.
    """
    import numpy as np

    random = np.random.default_rng(3)
    # Heap order: node i has its children at 2 i + 1 and 2 i + 2.
    inner, size = 2**_DEPTH - 1, 2 ** (_DEPTH + 1) - 1
    node = np.tile(np.arange(size), _TREES)
    tree, leaf = np.repeat(np.arange(_TREES), size), node >= inner
    attributes: dict[str, Any] = {
        "n_targets": 1,
        "nodes_treeids": tree.tolist(),
        "nodes_nodeids": node.tolist(),
        "nodes_featureids": np.where(leaf, 0, random.integers(0, _FEATURES, node.size)).tolist(),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values": np.where(leaf, 0.0, random.normal(scale=_THRESHOLDS, size=node.size)).tolist(),
        "nodes_truenodeids": np.where(leaf, 0, 2 * node + 1).tolist(),
        "nodes_falsenodeids": np.where(leaf, 0, 2 * node + 2).tolist(),
        "target_treeids": tree[leaf].tolist(),
        "target_nodeids": node[leaf].tolist(),
        "target_ids": [0] * int(leaf.sum()),
        "target_weights": random.normal(size=int(leaf.sum())).tolist(),
    }
    for rows in (1, 16, 64, 256, 2048):
        steps = rows * _TREES * (_DEPTH + 1)  # a comparison on each level, then the addition of the leaf
        yield Probe(
            key=f"tree.t{{T}}.{steps}",
            amount=float(steps),
            per="time",
            op_type="TreeEnsembleRegressor",
            domain=CLASSICAL,
            inputs=(random.normal(size=(rows, _FEATURES)).astype(np.float32),),
            attributes=attributes,
        )


_SAMPLES, _VECTORS = 512, 512
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def classical() -> Iterator[Probe]:
    """Time per element, per kernel value of support vectors, per score, per row of a broadcast."""
    x = floats(_SAMPLES, _FEATURES)
    vectors = floats(_VECTORS, _FEATURES).reshape(-1).tolist()
    scaling = {"offset": [0.5] * _FEATURES, "scale": [2.0] * _FEATURES}
    imputing = {"imputed_value_floats": [0.5] * _FEATURES, "replaced_value_float": float("nan")}
    # Few scores a row: what is done for each row outweighs the products.
    linear = {"coefficients": [0.1] * (3 * _FEATURES), "intercepts": [0.1] * 3, "classlabels_ints": [0, 1, 2]}
    rows: list[tuple[str, str, int, dict[str, Any]]] = [
        ("Scaler", "Scaler", x.size, scaling),
        ("Imputer", "Imputer", x.size, imputing),
        ("LinearClassifier", "LinearClassifier", 3 * _SAMPLES, {**linear, "post_transform": "SOFTMAX"}),
    ]
    for kernel in _KERNELS:
        values = {"kernel_type": kernel, "kernel_params": [0.1, 0.0, 3.0], "n_supports": _VECTORS}
        values |= {"coefficients": [0.1] * _VECTORS, "support_vectors": vectors, "rho": [0.0]}
        rows.append((f"SVM{kernel}", "SVMRegressor", _SAMPLES * _VECTORS, values))
    for name, op, amount, attributes in rows:
        yield Probe(
            key=f"elementwise.{name}.t{{T}}",
            amount=float(amount),
            per="time",
            op_type=op,
            domain=CLASSICAL,
            inputs=(x,),
            attributes=attributes,
            outputs=2 if op == "LinearClassifier" else 1,
        )
    yield from listed("classical models")
