"""How many bytes a tensor has and what shape operands have together: the same wherever it is asked."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from analyzer.checks.device_answers import tensor_bytes
from analyzer.costs.cost import OpenSizeError, nbytes
from analyzer.graph import DTYPES, DTYPES_BY_NUMBER, Node, Tensor, broadcast, packed_bytes
from analyzer.loading.shape_inference.contrib_operators import infer_contrib
from analyzer.record.analysis import TensorInfo
from analyzer.training_operators.definition import Definition


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((2, 3), "float32", 24),
        ((), "float64", 8),
        ((3,), "complex128", 48),
        ((0, 7), "float32", 0),
        # 9 x 4 bits are 36 bits, not three rows of two bytes: the last byte alone is filled up.
        ((3, 3), "int4", 5),
        ((1,), "uint4", 1),
        ((5,), "int2", 2),
        ((4,), "float4e2m1", 2),
        # Four in three bytes (onnx.proto, raw_data): 30 bits are 4 bytes.
        ((4,), "float6e2m3", 3),
        ((5,), "float6e3m2", 4),
        ((2,), "float8e5m2", 2),
        ((None, 3), "float32", None),
        (None, "float32", None),
        ((3,), "string", None),
    ],
)
def test_types_of_less_than_a_byte_fill_up_the_last_byte_of_a_tensor(
    shape: tuple[int | None, ...] | None, dtype: str, expected: int | None
) -> None:
    assert packed_bytes(shape, DTYPES[dtype].bits) == expected
    assert Tensor(name="x", shape=shape, dtype=DTYPES[dtype]).nbytes == expected


@pytest.mark.parametrize(("name", "number"), onnx.TensorProto.DataType.items())
def test_every_type_of_the_installed_onnx_is_known_by_its_number(name: str, number: int) -> None:
    short = {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())
    assert (DTYPES_BY_NUMBER[number].name, DTYPES[short].onnx) == (short, number)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_counts_checks_and_the_graph_agree_on_every_type(name: str) -> None:
    tensor = Tensor(name="x", shape=(3, 5), dtype=DTYPES[name])
    info = TensorInfo(name="x", shape=(3, 5), dtype=name)
    assert tensor_bytes(info) == tensor.nbytes
    if tensor.nbytes is None:
        with pytest.raises(OpenSizeError, match="no fixed width"):
            nbytes(tensor)
    else:
        assert nbytes(tensor) == tensor.nbytes


shapes = st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple), min_size=1, max_size=3)


@given(shapes)
def test_operands_broadcast_as_numpys_do(operands: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*operands)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast(operands)
    else:
        assert broadcast(operands) == expected


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ((None,), (5,), (5,)),  # 1 or 5: 5 either way
        ((None,), (1,), (None,)),
        ((None,), (None,), (None,)),
        ((None,), (0,), (0,)),
        ((None, 4), (3, 1, 4), (3, None, 4)),
    ],
)
def test_an_open_size_is_told_by_the_other_operand_unless_that_is_one(
    one: tuple[int | None, ...], two: tuple[int | None, ...], expected: tuple[int | None, ...]
) -> None:
    assert broadcast([one, two]) == expected
    assert broadcast([two, one]) == expected


def test_quantized_operands_that_do_not_fit_have_no_shape_made_up() -> None:
    scale = Tensor(name="s", shape=(), dtype=DTYPES["float32"])
    zero = Tensor(name="z", shape=(), dtype=DTYPES["uint8"])
    a, b = (Tensor(name=name, shape=(2, width), dtype=DTYPES["uint8"]) for name, width in (("a", 3), ("b", 4)))
    node = helper.make_node("QLinearAdd", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"])
    inputs = (a, scale, zero, b, scale, zero, scale, zero)
    assert infer_contrib(node, "com.microsoft", inputs, {}) == {}
    fitting = (a, scale, zero, a, scale, zero, scale, zero)
    assert infer_contrib(node, "com.microsoft", fitting, {})["y"] == (DTYPES["uint8"], (2, 3))


def test_an_empty_operand_of_a_compact_operator_makes_an_empty_result() -> None:
    empty, one = (Tensor(name=f"t{size}", shape=(size, 4), dtype=DTYPES["float32"]) for size in (0, 1))
    node = Node(index=0, name="compact", op_type="Any", inputs=(empty, one), outputs=(empty,))
    assert Definition(node=node, opset=18).op("Add", empty, one).shape == (0, 4)
