"""Probes of operators that move data, of recurrent ones, of trees and of attention; see ``probes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analyzer.measurement.ceilings.probes import CLASSICAL, COLUMNS, MICROSOFT, ROWS, Probe, floats

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    import numpy as np


_NONE: Mapping[str, Any] = MappingProxyType({})
_SIZE = ROWS * COLUMNS


def movements() -> Iterator[Probe]:
    """Time per output element."""
    yield from _plain()
    yield from _indexed()
    yield from _transposes()
    yield from _resized()


def _move(
    op: str,
    *inputs: Array | None,
    elements: int = _SIZE,
    key: str | None = None,
    attributes: Mapping[str, Any] = _NONE,
    constants: tuple[int, ...] = (),
    outputs: int = 1,
) -> Probe:
    return Probe(
        key=f"move.{key or op}.t{{T}}",
        amount=float(elements),
        per="time",
        op_type=op,
        inputs=inputs,
        attributes=attributes,
        constants=frozenset(constants),
        outputs=outputs,
    )


def _plain() -> Iterator[Probe]:
    import numpy as np

    x, half = floats(ROWS, COLUMNS), floats(ROWS, COLUMNS // 2)
    yield _move("Identity", x)
    yield _move("Concat", half, half, attributes={"axis": 1})
    yield _move("Split", x, attributes={"axis": 1, "num_outputs": 2}, outputs=2)
    yield _move(
        "Slice",
        floats(ROWS, 2 * COLUMNS),
        np.array([0], np.int64),
        np.array([COLUMNS], np.int64),
        np.array([1], np.int64),
        constants=(1, 2, 3),
    )
    yield _move(
        "Slice",
        floats(ROWS, 2 * COLUMNS),
        *(np.array([each], np.int64) for each in (0, 2 * COLUMNS, 1, 2)),
        key="SliceSteps",
        constants=(1, 2, 3, 4),
    )
    yield _move("Expand", floats(ROWS, 1), np.array([ROWS, COLUMNS], np.int64), constants=(1,))
    yield _move("Tile", half, np.array([1, 2], np.int64), constants=(1,))
    yield _move("Pad", floats(ROWS, COLUMNS - 2), np.array([0, 1, 0, 1], np.int64), constants=(1,))
    yield _move("Where", np.ones((ROWS, COLUMNS), bool), x, x)
    yield _move("Trilu", x)
    limits = (np.array(start, np.int64) for start in (0, _SIZE, 1))
    yield _move("Range", *limits)


def _indexed() -> Iterator[Probe]:
    import numpy as np

    generator = np.random.default_rng(2)
    x, table = floats(ROWS, COLUMNS), floats(4096, COLUMNS)
    rows = generator.integers(0, 4096, ROWS)
    # Indices without order: neighbours in the result are far apart in the source.
    everywhere = generator.integers(0, COLUMNS, (ROWS, COLUMNS))
    yield _move("Gather", table, rows, attributes={"axis": 0}, constants=(0,))
    yield _move("GatherElements", x, everywhere, attributes={"axis": 1})
    yield _move("GatherND", table, rows.reshape(-1, 1))
    yield _move("ScatterElements", x, everywhere, x, attributes={"axis": 1})
    yield _move("GatherElements", x, everywhere % ROWS, key="GatherElementsOuter", attributes={"axis": 0})
    yield _move("ScatterElements", x, everywhere % ROWS, x, key="ScatterElementsOuter", attributes={"axis": 0})
    yield _move("NonZero", everywhere % 2 == 0)
    yield _move("ScatterND", x, np.arange(ROWS, dtype=np.int64).reshape(-1, 1), x)
    yield _move(
        "OneHot",
        generator.integers(0, COLUMNS, ROWS),
        np.array([COLUMNS], np.int64),
        np.array([0, 1], np.float32),
        constants=(1, 2),
    )


def _transposes() -> Iterator[Probe]:
    yield _move("Transpose", floats(512, 512), key="TransposeMatrix", attributes={"perm": [1, 0]})
    yield _move("Transpose", floats(2, 128, 16, 64), key="TransposeHeads", attributes={"perm": [0, 2, 1, 3]})
    yield _move("Transpose", floats(1, 64, 64, 64), key="TransposeNHWC", attributes={"perm": [0, 2, 3, 1]})
    anywhere = floats(4, 4, 4, 64, 64)
    yield _move("Transpose", anywhere, key="TransposeAny", attributes={"perm": [0, 3, 1, 4, 2]})


def _resized() -> Iterator[Probe]:
    import numpy as np

    image, scales = floats(1, 64, 32, 32), np.array([1, 1, 2, 2], np.float32)
    for mode, key in (("nearest", "ResizeNearest"), ("linear", "ResizeLinear")):
        yield _move("Resize", image, None, scales, key=key, attributes={"mode": mode}, constants=(2,))
    yield _move("DepthToSpace", floats(1, 256, 32, 32), attributes={"blocksize": 2})
    crd = {"blocksize": 2, "mode": "CRD"}
    yield _move("DepthToSpace", floats(1, 256, 32, 32), key="DepthToSpaceCRD", attributes=crd)
    yield _move("SpaceToDepth", floats(1, 64, 64, 64), attributes={"blocksize": 2})
    points = floats(1, 64, 64, 2) - 1.0
    yield _move("GridSample", floats(1, 64, 32, 32), points, elements=64 * 64 * 64)


_STEPS = 16
# Rows of the weights for each unit of the state (ONNX's W and R).
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrences() -> Iterator[Probe]:
    """Time per step; the input is as wide as the state."""
    for hidden, batch in ((64, 1), (256, 1), (256, 16), (512, 1), (512, 32)):
        for op in ("LSTM", "GRU"):
            yield _recurrence(op, hidden, batch)
    yield _recurrence("RNN", 256, 1)


def _recurrence(op: str, hidden: int, batch: int) -> Probe:
    rows = _GATES[op] * hidden
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if op == "GRU":
        attributes["linear_before_reset"] = 1  # as PyTorch exports it
    return Probe(
        key=f"rnn.{op}.t{{T}}.h{hidden}.b{batch}",
        amount=float(_STEPS),
        per="time",
        op_type=op,
        inputs=(
            floats(_STEPS, batch, hidden),
            floats(1, rows, hidden),
            floats(1, rows, hidden),
            floats(1, 2 * rows),
        ),
        constants=frozenset({1, 2, 3}),
        attributes=attributes,
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


def attentions() -> Iterator[Probe]:
    """Fused attention: two products and a softmax in one kernel."""
    for batch, heads, length, width in ((1, 12, 128, 64), (1, 8, 512, 64)):
        qkv = [floats(batch, length, heads * width) for _ in range(3)]
        yield Probe(
            key=f"attention.float32.t{{T}}.b{batch}.h{heads}.s{length}.d{width}",
            # Two products of 2 FLOPs a multiplication and addition; the softmax is not counted.
            amount=4.0 * batch * heads * length * length * width,
            per="rate",
            op_type="MultiHeadAttention",
            domain=MICROSOFT,
            inputs=qkv,
            attributes={"num_heads": heads},
        )


# Probes of what an operator takes for each row or run of elements, besides the elements; see ``probes``.
#
# Probes of elements have rows of a thousand; tables of features, scores of classes and heads have rows of ten.
SHORT = 8
"""Elements of a row."""
_ROWS = 16384
_LAST: Mapping[str, Any] = MappingProxyType({"axis": -1})


def short_rows() -> Iterator[Probe]:
    """Time per row of ``SHORT`` elements, or per run of one or two that is copied."""
    import numpy as np

    x, row = floats(_ROWS, SHORT), floats(SHORT)
    yield _rows("Softmax", x, attributes=_LAST)
    yield _rows("LayerNormalization", x, row, row, constants=(1, 2), attributes=_LAST)
    yield _rows("ReduceSum", x, np.array([1], np.int64), constants=(1,))
    yield _rows("ReduceL2", x, np.array([1], np.int64), constants=(1,))
    yield _rows("ArgMax", x, attributes=_LAST)
    yield _rows("Gather", floats(_ROWS // 4, 16), np.array([3, 11, 5, 8], np.int64), attributes={"axis": 1})
    pairs, singles = floats(_ROWS // 4, 2), floats(_ROWS // 8, 1)
    yield _rows("Concat", *(pairs,) * 4, attributes=_LAST)
    yield _rows("Concat", *(singles,) * 8, key="ConcatSingles", attributes=_LAST)


def _rows(
    op: str,
    *inputs: Array,
    key: str | None = None,
    constants: tuple[int, ...] = (),
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> Probe:
    return Probe(
        key=f"row.{key or op}.t{{T}}",
        amount=float(_ROWS),
        per="time",
        op_type=op,
        inputs=inputs,
        constants=frozenset(constants),
        attributes=attributes,
    )
