"""Shapes of ONNX Runtime's own operators: each expected one is what onnxruntime 1.31.1's own inference gives.

It was read from the warning of a session on a model that declares another shape ("Error merging shape info").
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
from onnx import helper

from analyzer.graph import DTYPES, Shape, Tensor
from analyzer.loading.shape_inference.contrib_operators import infer_contrib

CONTRIB, NHWC = "com.microsoft", "com.ms.internal.nhwc"


def outputs(
    op_type: str,
    domain: str,
    shapes: Sequence[tuple[int, ...] | None],
    *,
    dtypes: Mapping[int, str] = MappingProxyType({}),
    number: int = 1,
    **attributes: Any,
) -> list[tuple[str, Shape]]:
    """The inferred types of an operator's outputs; an input whose shape is None is absent."""
    names = [f"x{i}" if shape is not None else "" for i, shape in enumerate(shapes)]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(number)], domain=domain)
    inputs = [
        None if shape is None else Tensor(name=name, shape=shape, dtype=DTYPES[dtypes.get(i, "float32")])
        for i, (name, shape) in enumerate(zip(names, shapes, strict=True))
    ]
    kinds = infer_contrib(node, domain, inputs, attributes)
    return [(dtype.name, shape) for dtype, shape in kinds.values()]


def test_a_fused_convolution_of_channels_last_keeps_them_last_without_an_attribute_that_says_so() -> None:
    # 9 x 8 pixels of 3 channels, 4 filters of 3 x 2: 9 - 3 + 1 = 7 by 8 - 2 + 1 = 7
    assert outputs("NhwcFusedConv", CONTRIB, [(1, 9, 8, 3), (4, 3, 3, 2)]) == [("float32", (1, 7, 7, 4))]


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes", "expected"),
    [
        ("QLinearConv", [(1, 9, 8, 3), (), (), (4, 3, 3, 2), (), (), (), ()], {}, (1, 7, 7, 4)),
        (
            "QLinearAveragePool",
            [(1, 9, 8, 3), (), (), (), ()],
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            (1, 4, 4, 3),
        ),
    ],
)
def test_in_the_internal_channels_last_domain_channels_are_last(
    op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert outputs(op_type, NHWC, shapes, **attributes)[0][1] == expected


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "expected"),
    [
        # From -1 in steps of 3: -1, 2, 5, and 8, which lies in the padding behind the image of 7.
        (7, 2, 3, (1, 1), 3),
        # 0, 4, and 8, which lies behind the image of 6.
        (6, 1, 4, (0, 3), 2),
        # 0, 2, 4, 6, 8: the last one has half its taps in the image of 9.
        (9, 2, 2, (0, 0), 5),
    ],
)
def test_a_window_that_would_start_behind_the_image_does_not_count(
    size: int, kernel: int, stride: int, pads: tuple[int, ...], expected: int
) -> None:
    attributes: dict[str, Any] = {
        "kernel_shape": [kernel],
        "strides": [stride],
        "pads": list(pads),
        "ceil_mode": 1,
    }
    (kind,) = outputs("NhwcMaxPool", CONTRIB, [(1, size, 3)], dtypes={0: "uint8"}, **attributes)
    assert kind == ("uint8", (1, expected, 3))


def test_a_quantised_cache_stays_quantised() -> None:
    shapes = [(2, 1, 12), (2, 1, 6), (2, 1, 6), (2, 2, 16, 3), (2, 2, 16, 3)]
    kinds = outputs(
        "GroupQueryAttention",
        CONTRIB,
        shapes,
        dtypes={3: "int8", 4: "int8"},
        number=3,
        num_heads=4,
        kv_num_heads=2,
    )
    assert [dtype for dtype, _ in kinds] == ["float32", "int8", "int8"]


def test_the_norm_that_onnx_runtime_declares_in_onnx_s_own_domain_keeps_the_shape() -> None:
    # Its builder for GenAI writes it there (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
    assert outputs("SimplifiedLayerNormalization", "", [(2, 3, 8), (8,)]) == [("float32", (2, 3, 8))]
    assert outputs("QuickGelu", "", [(2, 3)]) == []


def test_the_words_of_texts_are_texts_as_many_as_the_longest_has() -> None:
    """onnxruntime/core/graph/contrib_ops/contrib_defs.cc: [N, C] becomes [N, C, D], [C] becomes [C, D]."""
    texts = {0: "string"}
    assert outputs("Tokenizer", CONTRIB, [(64, 1)], dtypes=texts) == [("string", (64, 1, None))]
    assert outputs("Tokenizer", CONTRIB, [(7,)], dtypes=texts) == [("string", (7, None))]
