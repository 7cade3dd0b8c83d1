"""The kernels' worth of work of one operator, by hand from the operator's definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import prediction_graphs as made
import pytest

from analyzer.costs.registry import count_node
from analyzer.graph import Node, Tensor
from analyzer.prediction.features import pieces_of
from analyzer.prediction.gpu.constants import FITTED
from analyzer.prediction.gpu.on_tensor_cores import Rows
from analyzer.prediction.gpu.tiles import conv_tiles, tiled
from analyzer.prediction.irregular_pieces import family_of
from analyzer.prediction.loop_variants import reduced_order
from analyzer.prediction.work_item import Kind, Piece
from analyzer.prediction.workload import from_pieces

Shape = tuple[int, ...]


def operator(op_type: str, inputs: Sequence[Shape], output: Shape, **attributes: Any) -> Node:
    """An operator whose first input is data, and whose others are stored."""
    tensors = [made.tensor(f"x{at}", *shape, constant=at > 0) for at, shape in enumerate(inputs)]
    return made.node(op_type, tensors, made.tensor("y", *output), **attributes)


def pieces(node: Node) -> list[Piece]:
    return pieces_of(node, count_node(node))


# Multiplications: batch, m, n, k. A convolution makes [images * positions, channels a group * taps] matrices.
PRODUCTS: list[tuple[str, list[Shape], Shape, dict[str, Any], Shape]] = [
    ("MatMul", [(5, 6, 7), (7, 8)], (5, 6, 8), {}, (1, 30, 8, 7)),
    ("MatMul", [(2, 5, 6, 7), (2, 5, 7, 8)], (2, 5, 6, 8), {}, (10, 6, 8, 7)),
    ("MatMul", [(2, 1, 6, 7), (5, 7, 8)], (2, 5, 6, 8), {}, (10, 6, 8, 7)),
    ("MatMul", [(7,), (7, 8)], (8,), {}, (1, 1, 8, 7)),
    ("Gemm", [(7, 6), (8, 7)], (6, 8), {"transA": 1, "transB": 1}, (1, 6, 8, 7)),
    ("Conv", [(2, 6, 9), (8, 6, 3)], (2, 8, 7), {}, (1, 2 * 7, 8, 6 * 3)),
    ("Conv", [(2, 6, 9, 10), (8, 3, 3, 2)], (2, 8, 7, 9), {"group": 2}, (2, 2 * 63, 4, 3 * 6)),
    ("Conv", [(1, 6, 5, 5), (6, 1, 3, 3)], (1, 6, 3, 3), {"group": 6}, (6, 9, 1, 9)),
    ("Conv", [(1, 2, 4, 5, 6), (3, 2, 2, 2, 2)], (1, 3, 3, 4, 5), {}, (1, 60, 3, 16)),
    ("ConvTranspose", [(2, 6, 9), (6, 8, 3)], (2, 8, 11), {}, (1, 2 * 9, 8 * 3, 6)),
    ("ConvTranspose", [(2, 6, 4, 5), (6, 4, 3, 2)], (2, 8, 6, 6), {"group": 2}, (2, 2 * 20, 4 * 6, 3)),
    ("ConvTranspose", [(1, 2, 3, 4, 5), (2, 3, 2, 2, 2)], (1, 3, 4, 5, 6), {}, (1, 60, 24, 2)),
]


@pytest.mark.parametrize(("op_type", "inputs", "output", "attributes", "shape"), PRODUCTS)
def test_a_product_has_the_shape_that_its_kernel_multiplies(
    op_type: str, inputs: list[Shape], output: Shape, attributes: dict[str, Any], shape: Shape
) -> None:
    node = operator(op_type, inputs, output, **attributes)
    (piece,) = pieces(node)
    assert (piece.batch, piece.m, piece.n, piece.k) == shape
    # Two operations a multiplication, four bytes an element; the second operand is stored.
    assert piece.flops == 2 * math.prod(shape)
    assert piece.read == 4 * sum(map(math.prod, inputs))
    assert piece.written == 4 * math.prod(output)
    assert piece.weights == 4 * sum(map(math.prod, inputs[1:]))


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("directions", [1, 2])
def test_a_recurrence_multiplies_all_inputs_at_once_and_its_state_at_each_step(
    op_type: str, gates: int, layout: int, directions: int
) -> None:
    steps, batch, width, hidden = 5, 3, 8, 16
    lead = (batch, steps) if layout else (steps, batch)
    rows = gates * hidden
    inputs = [(*lead, width), (directions, rows, width), (directions, rows, hidden)]
    node = operator(op_type, inputs, (*lead, directions, hidden), hidden_size=hidden, layout=layout)
    whole = count_node(node)
    first, second = pieces(node)
    assert (first.kind, second.kind) == (Kind.MATMUL, Kind.RECURRENT)
    assert (first.batch, first.m, first.n, first.k) == (directions, steps * batch, rows, width)
    assert (second.m, second.n, second.k, second.steps) == (batch, rows, hidden, steps * directions)
    assert first.flops == 2 * directions * steps * batch * rows * width
    assert first.flops + second.flops == whole.flops
    assert first.weights == 4 * directions * rows * width
    assert second.weights == 4 * directions * rows * hidden


def test_a_recurrence_of_sequences_that_end_early_has_the_work_of_the_longest() -> None:
    lasting = operator("LSTM", [(8, 1, 4), (1, 64, 4), (1, 64, 16)], (8, 1, 1, 16), hidden_size=16)
    whole = pieces(lasting)
    half = pieces(replace(lasting, steps=(1, 4)))
    assert sum(piece.flops for piece in half) == sum(piece.flops for piece in whole) / 2
    assert {(piece.least, piece.flops > 0) for piece in half} == {(0.25, True)}
    assert half[1].steps == whole[1].steps / 2


# What is reduced of [2, 3, 4, 5]: order, row, slices before the axes, from an element to the next.
REDUCED: list[tuple[Any, str, int, int, int]] = [
    ([3], "KR", 5, 1, 1),
    ([-1, 2], "KR", 20, 1, 1),
    ([0], "RK", 2, 1, 60),
    ([1], "KRK", 3, 2, 20),
    ([1, 2], "KRK", 12, 2, 5),
    ([0, 3], "RKR", 10, 1, 1),
    (None, "R", 120, 1, 1),
]


@pytest.mark.parametrize(("axes", "order", "row", "slices", "apart"), REDUCED)
def test_a_reduction_adds_rows_of_what_is_reduced(
    axes: list[int] | None, order: str, row: int, slices: int, apart: int
) -> None:
    places = {place % 4 for place in axes} if axes else set(range(4))
    output = tuple(1 if place in places else size for place, size in enumerate((2, 3, 4, 5)))
    node = operator("ReduceProd", [(2, 3, 4, 5)], output, **({"axes": axes} if axes else {}))
    (piece,) = pieces(node)
    assert reduced_order(node) == order
    assert (piece.kind, piece.elements, piece.row, piece.rows) == (Kind.REDUCE, 120, row, 120 / row)
    assert (piece.batch, piece.stride) == (slices, apart)


def test_a_reduction_over_axes_that_are_computed_is_of_no_known_order() -> None:
    tensors: list[Tensor] = [made.tensor("x", 2, 3), made.tensor("axes", 1, dtype="int64")]
    assert reduced_order(made.node("ReduceSum", tensors, made.tensor("y", 2, 1))) == ""


def test_attention_multiplies_queries_by_keys_and_scores_by_values() -> None:
    # 2 sequences of 3 heads, 4 queries, 6 keys of size 8: two products, which read half of the bytes each.
    inputs = [(2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)]
    scores, values = pieces(operator("Attention", inputs, (2, 3, 4, 8)))
    assert (scores.batch, scores.m, scores.n, scores.k) == (6, 4, 6, 8)
    assert (values.batch, values.m, values.n, values.k) == (6, 4, 8, 6)
    assert scores.flops == values.flops == 2 * 6 * 4 * 6 * 8
    assert scores.read == values.read == 4 * (6 * 4 * 8 + 2 * 6 * 6 * 8) / 2
    assert (scores.written, values.written) == (0, 4 * 6 * 4 * 8)
    assert scores.fixed == values.fixed == scores.weights == 0


of, given, tensor = made.of, made.given, made.tensor
ML, BYTES = "ai.onnx.ml", tensor("w", 64, 64, dtype="uint8", constant=True)
SIGNED = tensor("x", 5, 64, dtype="int8")
PIECES: list[tuple[Node, list[dict[str, Any]]]] = [
    # A repeated operand changes where its axes end: BroadcastIterator joins axes from the last on while an
    # operand is whole or repeated along all of them.
    (of("Add", [(6, 4, 5), (6, 4, 5)], (6, 4, 5)), [{"rows": 1}]),
    (of("Add", [(6, 4, 5), (5,)], (6, 4, 5)), [{"rows": 24}]),
    (of("Add", [(6, 4, 5), (4, 5)], (6, 4, 5)), [{"rows": 6}]),
    (of("Add", [(6, 4, 5), (6, 1, 1)], (6, 4, 5)), [{"rows": 6}]),
    (of("Add", [(6, 4, 5), (4, 1)], (6, 4, 5)), [{"rows": 24}]),
    (of("Add", [(6, 4, 5), (1,)], (6, 4, 5)), [{"rows": 1}]),
    (of("Add", [(1000, 1), (1,)], (1000, 1)), [{"rows": 1000}]),
    # Moves copy what lies together at once.
    (of("Gather", [(7, 4, 5), (6,)], (6, 4, 5)), [{"kind": Kind.MOVE, "rows": 6, "elements": 120}]),
    (of("Gather", [(7, 4, 5), (6,)], (7, 6, 5), axis=1), [{"rows": 42, "elements": 210}]),
    (of("Concat", [(2, 3, 5), (2, 4, 5)], (2, 7, 5), axis=1), [{"rows": 4, "row": 70 / 4, "batch": 2}]),
    (of("Concat", [(2, 3, 5), (2, 3, 5)], (2, 3, 10), axis=-1), [{"rows": 12, "elements": 60}]),
    (of("Slice", [(4, 6, 5)], (2, 6, 5)), [{"rows": 1}]),
    (of("Slice", [(4, 6, 5)], (4, 3, 5)), [{"rows": 4}]),
    (of("Slice", [(4, 6, 5)], (4, 6, 2)), [{"rows": 24}]),
    # A row is what is normalised together; a Softmax along another axis is transposed to the last and back.
    (of("LayerNormalization", [(2, 6, 4, 5)], (2, 6, 4, 5)), [{"kind": Kind.NORM, "row": 5, "rows": 48}]),
    (of("LayerNormalization", [(2, 6, 4, 5)], (2, 6, 4, 5), axis=1), [{"row": 120, "rows": 2}]),
    (of("InstanceNormalization", [(2, 6, 4, 5), (6,), (6,)], (2, 6, 4, 5)), [{"row": 20, "rows": 12}]),
    (of("MeanVarianceNormalization", [(2, 6, 4, 5)], (2, 6, 4, 5)), [{"row": 40, "rows": 6}]),
    (of("MeanVarianceNormalization", [(2, 6, 4, 5)], (2, 6, 4, 5), axes=(1, -1)), [{"row": 30, "rows": 8}]),
    (
        of("GroupNormalization", [(2, 6, 4, 5), (6,), (6,)], (2, 6, 4, 5), num_groups=3),
        [{"row": 40, "rows": 6}],
    ),
    (of("Softmax", [(2, 6, 4, 5)], (2, 6, 4, 5)), [{"kind": Kind.SOFTMAX, "row": 5, "rows": 48}]),
    (of("Softmax", [(2, 6, 4, 5)], (2, 6, 4, 5), axis=1), [{"row": 6, "rows": 40}, *[{"elements": 240}] * 2]),
    # Runs are what lies together behind the last axis that is padded, repeated or chosen from.
    (
        of("Pad", [(2, 3, 4, 5), given(0, 1, 0, 0, 0, 1, 0, 0)], (2, 5, 4, 5)),
        [{"rows": 200 / 60, "elements": 200}],
    ),
    (of("Pad", [(2, 3), given(0, 1, 0, 1)], (2, 5)), [{"rows": 10 / 3}]),
    (of("Tile", [(2, 3, 4), given(1, 2, 1)], (2, 6, 4)), [{"rows": 4}]),
    (of("Compress", [(6, 4, 5), (6,)], (2, 4, 5), axis=0), [{"rows": 6, "elements": 120}]),
    (of("Compress", [(6, 4, 5), (120,)], (7,)), [{"rows": 1, "elements": 120}]),
    (of("CumSum", [(6, 4, 5), given(1)], (6, 4, 5)), [{"row": 4}]),
    (of("CumSum", [(6, 4, 5), given(-1)], (6, 4, 5)), [{"row": 5}]),
    (of("CumSum", [(6, 4, 5), tensor("axis", dtype="int64")], (6, 4, 5)), [{"row": 120}]),
    (of("GatherND", [(6, 4, 5), tensor("i", 7, 2, dtype="int64")], (7, 5)), [{"rows": 7, "row": 5}]),
    (
        of("ScatterND", [(6, 4, 5), tensor("i", 7, 1, dtype="int64"), (7, 4, 5)], (6, 4, 5)),
        [{"rows": 7, "row": 20, "elements": 140}],
    ),
    (
        of("ScatterElements", [(1000, 16), tensor("i", 100, 16, dtype="int64"), (100, 16)], (1000, 16), axis=1),
        [{"elements": 1600}],
    ),
    (of("Sum", [(6, 4), (6, 4), (6, 4)], (6, 4)), [{"batch": 2, "elements": 48, "rows": 1}]),
    (of("ArgMax", [(6, 4, 5)], (6, 1, 5), axis=1), [{"row": 4, "rows": 30, "stride": 5, "elements": 120}]),
    # A probe keeps 8 of 1,024; a level of the heap takes 16 comparisons.
    (of("TopK", [(3, 1024), given(8)], (3, 8)), [{"elements": 3 * 1024}]),
    (of("TopK", [(1024, 3), given(8)], (8, 3), axis=0), [{"elements": 3 * 1024}]),
    (
        of("TopK", [(3, 1024), given(1)], (3, 1)),
        [{"elements": 3 * 1024 * 1024 / (1024 + 16 * 8 * (1 + math.log(128)) * 3)}],
    ),
    (of("TopK", [(3, 4), given(1)], (3, 1), axis=2), [{"elements": 12}]),
    # A value of a box is sampled at ratio^2 places, 3^2 where boxes decide; a position once for all channels.
    (of("RoiAlign", [(1, 4, 9, 9), (5, 4), (5,)], (5, 4, 3, 3), sampling_ratio=2), [{"taps": 4, "spread": 1}]),
    (of("RoiAlign", [(1, 4, 9, 9), (5, 4), (5,)], (5, 4, 3, 3)), [{"taps": 9, "spread": 9}]),
    (of("GridSample", [(1, 4, 9, 9), (1, 3, 5, 2)], (1, 4, 3, 5)), [{"elements": 60}, {"elements": 15}]),
    (of("MaxUnpool", [(1, 4, 3, 3), (1, 4, 3, 3)], (1, 4, 6, 6), kernel_shape=(2, 2)), [{"elements": 36}]),
    (of("MaxPool", [(1, 4, 6, 6)], (1, 4, 3, 3), kernel_shape=(2, 2)), [{"taps": 4, "elements": 36}]),
    (of("Resize", [(1, 4, 6, 6)], (1, 4, 3, 3), antialias=1), [{"taps": 1, "elements": 144}]),
    (
        of("DeformConv", [(1, 4, 5, 5), (6, 4, 3, 3), (1, 18, 3, 3)], (1, 6, 3, 3)),
        [{"elements": 4 * 9 * 9}, {"op": "Conv", "m": 18, "n": 3, "k": 36}],
    ),
    (of("ConvTranspose", [(2, 6, 1, 1), (6, 8, 3, 3)], (2, 8, 3, 3)), [{"m": 2, "spread": 4.5}]),
    # An einsum multiplies operands in order, batches first; its result or an operand may be turned.
    (of("Einsum", [(6, 7), (7, 8)], (6, 8), equation="ij,jk->ik"), [{"batch": 1, "m": 6, "n": 8, "k": 7}, {}]),
    (
        of("Einsum", [(5, 6, 7), (5, 7, 8)], (5, 6, 8), equation="bij,bjk->bik"),
        [{"batch": 5, "m": 6, "n": 8, "k": 7}, {"op": "EinsumBatch", "elements": 5}],
    ),
    (of("Einsum", [(7, 6), (7, 8)], (6, 8), equation="ji,jk->ik"), [{"m": 6, "k": 7}, {}, {"elements": 42}]),
    (
        of("Einsum", [(5, 6, 7), (5, 7, 8)], (8, 6, 5), equation="bij,bjk->kib"),
        [{"m": 6}, {}, {"elements": 240}],
    ),
    # One operand: its diagonal, its sums, and their axes in another order. Three have a count alone.
    (of("Einsum", [(5, 5)], (5,), equation="ii->i"), [{"kind": Kind.MOVE, "read": 20, "written": 20}]),
    (of("Einsum", [(2, 3, 4)], (2, 4), equation="ijk->ik"), [{"kind": Kind.REDUCE, "elements": 24}]),
    (of("Einsum", [(2, 3, 4)], (4, 2), equation="ijk->ki"), [{"elements": 24}, {"elements": 8, "read": 32}]),
    (of("Einsum", [(2, 3), (3, 4), (4, 5)], (2, 5), equation="ij,jk,kl->il"), [{"m": 2, "n": 5}]),
    # Products of bytes: the first operand's sign, packed weights of N by K, floats of 8 bits.
    (
        of("MatMulInteger", [SIGNED, BYTES], (5, 64)),
        [{"m": 5, "k": 64}, {"op": "PackSigned", "elements": 4096}],
    ),
    (
        of("MatMulNBits", [(2, 3, 64), BYTES, (64,)], (2, 3, 64), "com.microsoft", N=64, K=64),
        [{"m": 6, "n": 64, "k": 64, "flops": 2 * 6 * 64 * 64, "unpacked": 1}],
    ),
    (of("MatMul", [(5, 64), (64,)], (5,)), [{"op": "ProductWithVector", "elements": 5 * (64 + 40)}]),
    (of("QuantizeLinear", [(5, 64), (5,)], (5, 64)), [{"spread": 5}]),
    (of("QuantizeLinear", [(5, 64), ()], (5, 64)), [{"spread": 1}]),
    # Classical models: a value for each vector and feature, in rows of 32; three scores a row.
    (of("SVMRegressor", [(5, 64)], (5, 1), ML, n_supports=7), [{"elements": 5 * 7 * 64 / 32}]),
    (
        of("SVMClassifier", [(5, 64)], (5, 2), ML, vectors_per_class=(3, 4), coefficients=(1.0,) * 7),
        [{"elements": 5 * 7 * 2}, {"op": "SVMVotes", "elements": 5 * 7}],
    ),
    (
        of("LinearRegressor", [(5, 64)], (5, 3), ML),
        [{"elements": 15}, {"m": 5, "n": 3, "k": 64, "flops": 1920}],
    ),
    (of("LinearClassifier", [(5, 64)], (5, 3), ML), [{"elements": 3 * (0.7 * 5 + 0.1 * 15)}, {"k": 32}]),
    (of("LinearClassifier", [(5, 32)], (5, 3), ML), [{"elements": 3 * (0.7 * 5 + 0.1 * 15)}]),
    (of("Normalizer", [(5, 64)], (5, 64), ML, norm="L2"), [{"least": 0.3}]),
    (of("Normalizer", [(5, 64)], (5, 64), ML, norm="L1"), [{"least": 1}]),
    (of("TfIdfVectorizer", [(5, 7)], (5, 64)), [{"elements": 320}, {"op": "TextByte", "elements": 35 * 6}]),
    (of("StringNormalizer", [(5,)], (5,)), [{"op": "TextByte", "elements": 5 * 32, "spread": 5}]),
    (of("LabelEncoder", [(5, 7)], (5, 7), ML), [{"elements": 35}]),
    (of("NonMaxSuppression", [(1, 9, 4), (1, 2, 9)], (3, 3)), [{"elements": 18}]),
    (of("Det", [(6, 4, 4)], (6,)), [{"elements": 6 * (130 + 5.5 * 16)}]),
    # n log2 n butterflies; of other lengths two transforms of the next power of two from 2 n - 1 on.
    (of("DFT", [(3, 8, 1), given(8), given(1)], (3, 8, 2)), [{"elements": 3 * 8 * 3}]),
    (of("DFT", [(3, 9, 1), given(9), given(1)], (3, 9, 2)), [{"elements": 3 * 2 * 32 * 5}]),
    (of("STFT", [(3, 64, 1), given(8), (16,), given(16)], (3, 7, 9, 2)), [{"elements": 21 * 16 * 4}]),
]


SMALLER, LARGER = (made.graph(of("Exp", [(size,)], (size,))) for size in (5, 50))
BRANCHES = {"then_branch": SMALLER, "else_branch": LARGER}
BODIES: list[tuple[Node, str, int, float, int]] = [
    # A call takes as long as so many operators, 0.25 us each, besides those of the body.
    (replace(of("If", [given(1)], (5,)), graphs=BRANCHES), "BranchCall", 7, 1, 5),
    (replace(of("If", [given(0)], (5,)), graphs=BRANCHES), "BranchCall", 7, 1, 50),
    (replace(of("If", [tensor("c", dtype="bool")], (5,)), graphs=BRANCHES), "BranchCall", 7, 1, 50),
    (replace(of("Loop", [given(9)], (5,)), graphs={"body": SMALLER}), "LoopTrip", 4, 9, 5),
    (replace(of("Loop", [tensor("m", dtype="int64")], (5,)), graphs={"body": SMALLER}), "LoopTrip", 4, 100, 5),
    (replace(of("Scan", [(9, 5)], (9, 5), num_scan_inputs=1), graphs={"body": SMALLER}), "ScanTrip", 22, 9, 5),
]


@pytest.mark.parametrize(("node", "name", "operators", "trips", "elements"), BODIES)
def test_a_body_runs_as_often_as_it_is_called(
    node: Node, name: str, operators: int, trips: float, elements: int
) -> None:
    called, body = pieces(node)
    assert (called.op, called.elements, called.repeats) == (name, operators, trips)
    assert (body.op, body.elements, body.repeats) == ("Exp", elements, trips)
    # Where data decide, anything from 1 to 10,000 trips.
    assert (body.spread == 100) == (trips == 100)


@pytest.mark.parametrize(("node", "expected"), PIECES, ids=lambda value: getattr(value, "op_type", ""))
def test_an_operator_is_so_much_of_its_kernels(node: Node, expected: list[dict[str, Any]]) -> None:
    got = [{name: getattr(one, name) for name in two} for one, two in zip(pieces(node), expected, strict=True)]
    assert got == [pytest.approx(one) for one in expected]


def test_keys_and_values_of_all_layers_pass_between_two_uses_of_one() -> None:
    # Keys and values of 5 sequences and 3 heads of size 8, in 2 bytes or the cache's own 1; a window of 5.
    layer = Piece(kind=Kind.ATTENTION, op="Attention", batch=5, m=4, n=6, k=8, row=3, taps=0)
    short = replace(layer, spatial=1, taps=5)
    work = from_pieces([layer, Piece(kind=Kind.VECTOR, op="Relu"), short], [0, 1, 2], [1, 1, 1])
    at: Any = SimpleNamespace(precision=SimpleNamespace(element_bytes=2.0))
    both = 2 * 5 * 3 * 8 * ((6 + 4) * 2 + (5 + 4) * 1)
    assert Rows(work, np.array([0, 2]), at).all_caches.tolist() == [both, both]


def test_tiles_do_not_know_which_side_is_which() -> None:
    sides = np.array([1.0, 30.0, 33.0, 64.0, 100.0, 129.0, 1000.0])
    m, n = (side.reshape(-1) for side in np.meshgrid(sides, sides))
    at: dict[str, Any] = {"batch": np.ones(49), "k": np.full(49, 576.0), "out_s": np.full(49, 1e-6)}
    at |= {"rate": 1e13, "units": 1.0}
    tiles = conv_tiles(FITTED)
    assert tiled(m=m, n=n, tiles=tiles, **at) == pytest.approx(tiled(m=n, n=m, tiles=tiles, **at))


@pytest.mark.parametrize(
    ("op_type", "weights", "attributes", "family"),
    [
        ("DynamicQuantizeMatMul", "uint8", {}, "u8u8"),
        ("DynamicQuantizeMatMul", "int8", {}, "dynamic"),
        ("MatMulInteger", "uint8", {}, "u8u8"),
        ("MatMulInteger", "int8", {}, "u8s8"),
        ("MatMulNBits", "uint8", {}, "nbits4a0"),
        ("MatMulNBits", "uint8", {"accuracy_level": 4}, "nbits4a4"),
        ("MatMulNBits", "uint8", {"bits": 8, "accuracy_level": 1}, "nbits8a0"),
    ],
)
def test_the_weights_type_names_the_loop_of_an_integer_product(
    op_type: str, weights: str, attributes: dict[str, Any], family: str
) -> None:
    stored = made.tensor("w", 64, 64, dtype=weights, constant=True)
    inputs = [made.tensor("x", 4, 64), stored, made.tensor("scale", 1, constant=True)]
    assert family_of(op_type, made.node(op_type, inputs, made.tensor("y", 4, 64), **attributes)) == family


@pytest.mark.parametrize(("size", "unknown"), [(None, True), (6, False)])
def test_a_result_of_unknown_size_makes_the_time_unknown(size: int | None, unknown: bool) -> None:
    found = replace(made.tensor("y", dtype="int64"), shape=(2, size))
    work = made.work(made.graph(made.node("NonZero", [made.tensor("x", 2, 3)], found)))
    assert work.unknown.tolist() == [unknown]
