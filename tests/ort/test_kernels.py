"""The match rule of ONNX Runtime's registry, on kernels whose coverage its documentation tells."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from analyzer.graph import DTYPES, Node, Tensor
from analyzer.ort.kernels import Kernel, refusal, registry


def node(op_type: str, opset: int, *types: str, outputs: tuple[str, ...] = ("float32",)) -> Node:
    def tensors(prefix: str, names: tuple[str, ...]) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(name=f"{prefix}{i}", shape=(2,), dtype=DTYPES[name]) for i, name in enumerate(names)
        )

    return Node(
        index=0,
        name="it",
        op_type=op_type,
        version=opset,
        inputs=tensors("x", types),
        outputs=tensors("y", outputs),
    )


@pytest.mark.parametrize(
    ("start", "end", "since", "covered"),
    [(12, None, 12, True), (12, None, 22, False), (12, 21, 13, True), (12, 21, 22, False), (13, 21, 12, False)],
)
def test_an_open_ended_kernel_covers_its_own_schema_version_alone(
    start: int, end: int | None, since: int, covered: bool
) -> None:
    assert Kernel(start=start, end=end, types={}).covers(since) is covered


def test_a_schema_is_the_newest_that_is_no_newer_than_the_opset() -> None:
    known = registry()
    assert known.since("ai.onnx", "MaxPool", 21) == 12
    assert known.since("ai.onnx", "MaxPool", 22) == 22
    assert known.since("ai.onnx", "NoSuchOperator", 22) is None


def test_operators_have_the_definitions_that_onnx_gives_them_where_they_begin() -> None:
    known = registry()
    schemas: Any = onnx.defs.get_all_schemas_with_history()
    for schema in schemas:
        since = schema.since_version
        if schema.domain == "" and since <= known.newest_opset:
            written = (*schema.function_opset_versions, *schema.context_dependent_function_opset_versions)
            assert known.has_definition(node(schema.name, since, "float32")) == (since in written), schema.name


@pytest.mark.parametrize(
    ("op_type", "newest"),
    [("MaxPool", 21), ("Elu", 21), ("InstanceNormalization", 21), ("Relu", 26), ("Tan", None)],
)
def test_the_newest_opset_with_a_cuda_kernel_is_found(op_type: str, newest: int | None) -> None:
    assert registry().newest_opset_with_kernel("cuda", node(op_type, 23, "float32")) == newest


def test_a_type_is_refused_by_name_and_float64_is_called_double() -> None:
    slug, sentence = refusal(node("GridSample", 22, "float64", "float64", outputs=("float64",)))
    assert slug == "no-kernel-for-type"
    assert "double" in sentence
    nearest = registry().nearest("cuda", node("GridSample", 22, "float64", "float64", outputs=("float64",)))
    assert nearest == "float in place of double"
    assert registry().nearest("cuda", node("Nothing", 22, "float64")) == ""


def test_a_type_that_nothing_tells_refuses_no_kernel() -> None:
    assert refusal(node("Relu", 20, "undefined", outputs=("undefined",))) == ("", "")


def test_an_operator_of_an_unknown_domain_has_no_kernel() -> None:
    assert not registry().has_kernel(
        "cuda", Node(index=0, name="it", op_type="Mine", domain="my.domain", version=1)
    )


@pytest.mark.parametrize(
    ("identity", "is_lacking"),
    [
        (("com.microsoft", "Nothing"), True),
        (("ai.onnx.preview.training", "Adam"), True),
        # Domains of libraries: onnxruntime-extensions, and whatever else begins like ONNX Runtime's own.
        (("ai.onnx.contrib", "GPT2Tokenizer"), False),
        (("com.microsoft.extensions", "Nothing"), False),
    ],
)
def test_a_library_may_have_operators_of_a_domain_that_is_not_the_releases(
    identity: tuple[str, str], is_lacking: bool
) -> None:
    assert bool(registry("").lacks_operator(identity, 17)) is is_lacking


def test_shapes_are_written_to_host_memory_and_axes_are_read_from_it() -> None:
    known = registry()
    assert list(known.host_outputs(node("Shape", 20, "float32"))) == [0]
    assert list(known.host_inputs(node("Reshape", 20, "float32", "int64"))) == [1]
    assert list(known.host_inputs(node("Add", 20, "float32", "float32"))) == []
