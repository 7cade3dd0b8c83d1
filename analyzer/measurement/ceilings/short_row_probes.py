"""Probes of what an operator takes for each row or run of elements, besides the elements; see ``probes``.

Probes of elements have rows of a thousand; tables of features, scores of classes and heads have rows of ten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analyzer.measurement.ceilings.probes import Probe, floats

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

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
