"""Pools, sums of rows, Clip, norms with a sum, beside a recorded H100 (tests/data/gpu/h100-families-pool)."""

import prediction_graphs as made
import pytest

from analyzer import prediction
from analyzer.costs import count
from analyzer.devices import catalogue
from analyzer.graph import Graph
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.prediction import workload

CARD = catalogue.device("h100-80gb-sxm")


def seconds(one: Graph, precision: str) -> float:
    """Of one operator inside a CUDA graph: its kernel and the gap behind it."""
    groups = predicted_groups(one, "cuda", place(one))
    found = prediction.predict_arrays(workload(one, count(one), groups), CARD, precision=precision)
    assert found.overheads is not None
    return float((found.value - found.overheads.host_s).sum())


def pooled(batch: int, channels: int, side: int, window: int, op: str = "MaxPool") -> Graph:
    x = made.tensor("x", batch, channels, side, side)
    y = made.tensor("y", batch, channels, side // 2, side // 2)
    sizes = {"kernel_shape": (window,) * 2, "strides": (2, 2), "pads": (window // 3,) * 4}
    return made.graph(made.node(op, [x], y, **sizes))


def plane(op: str, batch: int, channels: int, side: int) -> Graph:
    x = made.tensor("x", batch, channels, side, side)
    attributes = {"axes": (2, 3)} if op == "ReduceMean" else {}
    return made.graph(made.node(op, [x], made.tensor("y", batch, channels, 1, 1), **attributes))


def norm(rows: int, hidden: int) -> Graph:
    inputs = [made.tensor("x", rows, hidden), made.tensor("s", rows, hidden)]
    inputs += [made.tensor(name, hidden, constant=True) for name in ("g", "b")]
    node = made.node("SkipLayerNormalization", inputs, made.tensor("y", rows, hidden), domain="com.microsoft")
    return made.graph(node)


@pytest.mark.parametrize(
    ("one", "precision", "microseconds"),
    [
        (pooled(32, 64, 112, 3), "fp16", 86.2),
        (pooled(32, 64, 224, 2), "fp16", 183.3),
        (pooled(32, 64, 224, 2), "tf32", 215.5),
        (pooled(8, 64, 112, 3, "AveragePool"), "fp16", 21.4),
        (plane("GlobalAveragePool", 32, 64, 56), "fp16", 21.8),
        (plane("ReduceMean", 32, 1280, 7), "fp16", 24.1),
        (plane("ReduceMean", 8, 64, 56), "tf32", 13.3),
        (plane("ReduceMean", 32, 64, 56), "tf32", 27.1),
        (made.elementwise("Clip", 32 * 96 * 112**2), "fp16", 113.5),
        (made.elementwise("Clip", 32 * 96 * 112**2), "tf32", 133.8),
        (norm(8192, 768), "tf32", 28.7),
        (norm(8192, 4096), "fp16", 69.5),
        (norm(8192, 4096), "tf32", 135.2),
    ],
)
def test_they_take_about_what_an_h100_took(one: Graph, precision: str, microseconds: float) -> None:
    """One of eight in a CUDA graph."""
    assert seconds(one, precision) == pytest.approx(microseconds * 1e-6, rel=0.4)


def test_a_pool_loads_each_element_of_its_windows() -> None:
    """Windows of nine take longer than windows of four over the same image: it is not bytes that count."""
    nine, four = (seconds(pooled(64, 64, 224, window), "fp16") for window in (3, 2))
    assert nine / four == pytest.approx(9 / 4, rel=0.05)


@pytest.mark.parametrize("op", ["ReduceSum", "ArgMax"])
def test_what_is_summed_up_along_rows_takes_longer_than_its_traffic(op: str) -> None:
    """An H100 issues about one element a clock and multiprocessor so: half of what 16 bits could stream."""
    traffic = 2 * 65536 * 4096 / CARD.bandwidth_bytes_per_s
    along, down = (seconds(reduced(op, axis), "fp16") for axis in (1, 0))
    assert along > 1.8 * traffic
    # Other kernels go down columns; they are not measured, and told at their traffic.
    assert traffic < down < 1.3 * traffic


def reduced(op: str, axis: int) -> Graph:
    sizes = (65536, 4096)
    along = {"axes": (axis,)} if op == "ReduceSum" else {"axis": axis}
    result = made.tensor("y", *sizes[:axis], *sizes[axis + 1 :])
    return made.graph(made.node(op, [made.tensor("x", *sizes)], result, keepdims=0, **along))


def test_rows_of_a_norm_with_a_sum_are_read_once() -> None:
    """x and skip are read, the result is written: all of it passes memory once."""
    moved = 3 * 32768 * 4096 * 4
    assert seconds(norm(32768, 4096), "tf32") == pytest.approx(moved / CARD.bandwidth_bytes_per_s, rel=0.2)
