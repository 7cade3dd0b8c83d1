"""The bytes that a decision copies and stores are those that the prediction moves."""

import pytest

from analyzer.devices import catalogue
from analyzer.graph import DTYPES, Tensor
from analyzer.precision import FLOAT_PRECISIONS, bytes_at, on_device, own_precision


@pytest.mark.parametrize("precision", FLOAT_PRECISIONS)
def test_a_gpu_stores_and_copies_what_the_prediction_reads(precision: str) -> None:
    there = on_device(catalogue.device("a100"), precision)
    flowing = Tensor(name="x", shape=(1000,), dtype=DTYPES["float32"])
    weight = Tensor(name="w", shape=(1000,), dtype=DTYPES["float32"], constant=True, initializer=True)
    assert bytes_at(weight, precision) == 1000 * there.element_bytes
    assert bytes_at(flowing, precision) == 1000 * there.element_bytes


def test_what_is_no_float32_keeps_its_width() -> None:
    assert bytes_at(Tensor(name="i", shape=(10,), dtype=DTYPES["int64"]), "fp16") == 80
    assert bytes_at(Tensor(name="s", shape=(10,), dtype=DTYPES["string"]), "fp16") is None
    assert bytes_at(Tensor(name="o", shape=(None,), dtype=DTYPES["float32"]), "fp16") is None


def test_a_models_precision_is_that_of_most_bytes() -> None:
    halves = Tensor(name="h", shape=(10,), dtype=DTYPES["float16"])
    few = Tensor(name="f", shape=(4,), dtype=DTYPES["float32"])
    indices = Tensor(name="i", shape=(1000,), dtype=DTYPES["int64"])
    assert own_precision([halves, few, indices]) == "fp16"
    assert own_precision([few, few, few]) == "fp32"
    assert own_precision([indices]) == "fp32"
