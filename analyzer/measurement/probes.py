"""Models of one operator whose time gives one ceiling each; the keys are those of ``devices.calibration``.

Most are rows of ``probes.toml``, which says how to read them; ``computed_probes`` has the others.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, NCHWC_DOMAIN

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MICROSOFT, BLOCKED, CLASSICAL = CONTRIB_DOMAIN, NCHWC_DOMAIN, CLASSICAL_DOMAIN
_OPSET = 20  # as the exporter's default
# Of the product that is also measured with the powers of two between one thread and all.
LARGE_GEMM = (1024, 1024, 1024)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """A node to be timed alone.

    Attributes:
        key: ``{T}`` stands for the number of threads.
        amount: Work of one node: FLOPs, bytes or elements.
        per: ``rate`` gives work per second, ``time`` seconds per work.
        op_type, domain, opset, attributes: The node.
        inputs: What it reads: arrays that are fed, by position; None for an optional one that is absent.
        constants: Positions of inputs that are stored with the model, as weights are.
        outputs: How many it writes.
        copies: So many of the same node in one model, where one is shorter than a call.
        fresh_constants: Whether each copy has its own constants, so that they come from memory, not from cache.
    """

    key: str
    amount: float
    per: Literal["rate", "time"]
    op_type: str
    inputs: Sequence[Array | None]
    constants: frozenset[int] = frozenset()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = _OPSET
    outputs: int = 1
    copies: int = 1
    fresh_constants: bool = False

    def repeated(self, copies: int, *, fresh_constants: bool = False) -> Probe:
        """Return the same with so many copies."""
        return replace(self, copies=copies, fresh_constants=fresh_constants)


def model_of(probe: Probe) -> bytes:
    """Return the model: ``copies`` of the node side by side, reading the same inputs."""
    import numpy as np
    from onnx import helper, numpy_helper

    stored: dict[str, Any] = {}
    nodes: list[Any] = []
    results: list[str] = []
    for copy in range(probe.copies):
        own = probe.constants if probe.fresh_constants else frozenset[int]()
        names = [
            "" if array is None else f"i{position}_{copy}" if position in own else f"i{position}"
            for position, array in enumerate(probe.inputs)
        ]
        outputs = [f"o{copy}_{number}" for number in range(probe.outputs)]
        # Only the last is a result: the others' memory comes from the arena, as inside a graph.
        results = outputs
        nodes.append(
            helper.make_node(
                probe.op_type, names, outputs, name=f"node{copy}", domain=probe.domain, **probe.attributes
            )
        )
        for position in probe.constants:
            array = probe.inputs[position] if position < len(probe.inputs) else None
            if array is not None and names[position] not in stored:
                # ONNX Runtime packs and keeps equal weights once.
                turned = np.roll(array.reshape(-1), copy).reshape(array.shape)
                stored[names[position]] = numpy_helper.from_array(turned, names[position])
    fed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds_of(probe).items()
    ]
    values = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph(nodes, "probe", fed, values, list(stored.values()))
    opsets = [helper.make_opsetid("", probe.opset)]
    # LabelEncoder names its keys and values since version 2 of ai.onnx.ml, which 3 keeps.
    opsets += [helper.make_opsetid(probe.domain, 3 if probe.domain == CLASSICAL else 1)] if probe.domain else []
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def feeds_of(probe: Probe) -> dict[str, Array]:
    """Return the arrays to feed, by input name."""
    return {
        f"i{position}": array
        for position, array in enumerate(probe.inputs)
        if array is not None and position not in probe.constants
    }


def floats(*shape: int, dtype: str = "float32") -> Array:
    """Return values between 0.5 and 1.5, the same each time."""
    import ml_dtypes  # noqa: F401 - makes NumPy know bfloat16 by name
    import numpy as np

    # Neither 0 nor denormal numbers, which some processors multiply slowly, nor values that exp and log mind.
    generator = np.random.default_rng(1)
    return np.asarray((generator.random(shape, dtype=np.float32) + 0.5).astype(dtype))


def integers(kind: str, *shape: int) -> Array:
    """Return integers below 64, or from -32 to 31, the same each time."""
    import ml_dtypes  # noqa: F401 - makes NumPy know int4 by name
    import numpy as np

    # So that no sum of two products leaves 16 bits: some kernels are slower where it would.
    random = np.random.default_rng(1)
    low, high = (0, 64) if kind.startswith("u") else (-32, 32)
    return np.asarray(random.integers(low, high, shape).astype("int8" if low else kind).astype(kind))


@cache
def tables() -> Mapping[str, Any]:
    """Return ``probes.toml``."""
    return tomllib.loads(Path(__file__).with_name("probes.toml").read_text(encoding="utf-8"))


def listed(family: str) -> Iterator[Probe]:
    """Yield the probes of a family of ``probes.toml``."""
    table = tables()[family]
    common = {key: value for key, value in table.items() if key != "probes"}
    known: dict[str, Array | None] = {}  # the same array for all of the family: together they fill a gigabyte
    for row in table["probes"]:
        row = {**common, **row}
        for op in row["op"].split():
            for sizes in row.get("sizes", [()]):
                numbers = {"op": op, **dict(zip(row.get("dimensions", ()), sizes, strict=True))}
                yield _probe(_filled({**row, "name": row.get("name", op)}, numbers), op, known)


def _filled(value: Any, numbers: Mapping[str, Any]) -> Any:
    """Return a value of a row with numbers for their names."""
    if isinstance(value, dict):
        return {key: _filled(part, numbers) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, numbers) for part in value]
    if not isinstance(value, str) or "{" not in value:
        return value
    for name, number in numbers.items():
        value = value.replace(f"{{{name}}}", str(number))
    return int(value) if value.isdigit() else value


def _probe(row: Mapping[str, Any], op: str, known: dict[str, Array | None]) -> Probe:
    inputs = []
    for text in row["inputs"]:
        if text not in known:
            known[text] = _array(text)
        inputs.append(known[text])
    amount = str(row.get("amount", inputs[0].size if inputs[0] is not None else 0))
    same = ("per", "attributes", "domain", "opset", "outputs", "copies", "fresh_constants")
    return Probe(
        key=row["key"].replace("{name}", row["name"]),
        amount=math.prod(float(factor) for factor in amount.split()),
        op_type=op,
        inputs=inputs,
        constants=frozenset(row.get("constants", ())),
        **{key: row[key] for key in same if key in row},
    )


def _array(text: str) -> Array | None:
    """Return an input as a row of ``probes.toml`` has it."""
    import numpy as np

    if not text:
        return None
    if text in _INDICES:
        return _INDICES[text]()
    kind, _, value = tables()["arrays"].get(text, text).partition("=")
    kind, _, shape = kind.strip().partition(" ")
    sizes = tuple(int(size) for size in shape.split("x")) if shape else ()
    if value:
        given = np.array(json.loads(value), kind)
        return np.full(sizes, given) if sizes else given
    if kind == "signed":
        return np.asarray(floats(*sizes) - 1.0)
    return floats(*sizes, dtype=kind) if kind.startswith("float") else integers(kind, *sizes)


_ROWS, _COLUMNS = 256, 1024


def _drawn(which: int) -> Array:
    """Return indices without order: of rows of a table, of places along an axis, of classes."""
    import numpy as np

    generator = np.random.default_rng(2)
    draws = ((4096, _ROWS), (_COLUMNS, (_ROWS, _COLUMNS)), (_COLUMNS, _ROWS))
    return [generator.integers(0, most, shape) for most, shape in draws][which]


def _counted(most: int) -> Array:
    import numpy as np

    return np.arange(most, dtype=np.int64)


_INDICES: Mapping[str, Callable[[], Array]] = {
    "rows": lambda: _drawn(0),
    "rows_apart": lambda: _drawn(0).reshape(-1, 1),
    # Neighbours in the result are far apart in the source.
    "anywhere": lambda: _drawn(1),
    "any_row": lambda: _drawn(1) % _ROWS,
    "even": lambda: _drawn(1) % 2 == 0,
    "classes": lambda: _drawn(2),
    "each_row": lambda: _counted(_ROWS),
    "each_row_apart": lambda: _counted(_ROWS).reshape(-1, 1),
    "categories": lambda: _counted(512).reshape(-1, 1) % 8,
    "above_8": lambda: integers("uint8", _ROWS, _COLUMNS) > 8,
}


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
# 48 trained ensembles (benchmarks/deployed_trees.py): the processor foresees the others.
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
