"""Every operator that ONNX defines, in the cases of its own backend suite, and the topologies that it ships."""

import warnings
from pathlib import Path

import onnx
import pytest

from analyzer.costs import count, find
from analyzer.costs.table import CostTable
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.loading.onnx_graph.onnx_file import read_model
from analyzer.ort.kernels import listing, releases

# GFLOP of all products, 2 for a multiply-accumulate, worked out apart from this project from the shapes that
# ONNX's own inference gives.
LIGHT = {
    "bvlc_alexnet": 1.309,
    "densenet121": 5.668,
    "inception_v1": 2.863,
    "inception_v2": 4.038,
    "resnet50": 8.178,
    "shufflenet": 0.249,
    "squeezenet": 0.698,
    "vgg19": 39.264,
    "zfnet512": 2.963,
}


@pytest.fixture(scope="module")
def tables() -> dict[str, CostTable]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx makes its cases with overflows on purpose
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases()
    models = {case.name: case.model for case in cases}
    assert None not in models.values()
    return {name: count(to_graph(model)) for name, model in models.items() if model is not None}


def test_every_case_of_the_backend_suite_is_counted(tables: dict[str, CostTable]) -> None:
    assert len(tables) > 1800
    assert all(len(table.costs) == len(table.graph.nodes) for table in tables.values())


def test_no_operator_that_onnx_defines_is_unknown(tables: dict[str, CostTable]) -> None:
    unknown = {
        (name, node.op_type, cost.note)
        for name, table in tables.items()
        for node, cost in zip(table.graph.nodes, table.costs, strict=True)
        if cost.basis == "unknown"
    }
    assert unknown == set()


def test_what_is_modelled_says_what_it_assumes(tables: dict[str, CostTable]) -> None:
    assert all(cost.note for table in tables.values() for cost in table.costs if cost.basis == "modelled")


def test_shapes_of_graph_outputs_are_known(tables: dict[str, CostTable]) -> None:
    outputs = [tensor for table in tables.values() for tensor in table.graph.outputs]
    shaped = [tensor for tensor in outputs if "(" not in tensor.dtype.name]  # sequences and maps have no shape
    assert len(shaped) > 2000
    assert sum(tensor.elements is not None for tensor in shaped) / len(shaped) >= 0.98


def test_shapes_of_inner_operators_are_known(tables: dict[str, CostTable]) -> None:
    inner = [
        tensor
        for table in tables.values()
        for node in table.graph.nodes
        for tensor in node.present_outputs
        if tensor not in table.graph.outputs
    ]
    assert len(inner) > 5000
    assert sum(tensor.elements is not None for tensor in inner) / len(inner) >= 0.9


@pytest.mark.parametrize("name", LIGHT)
def test_the_light_topologies_have_their_known_products(name: str) -> None:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    table = count(to_graph(read_model(folder / f"light_{name}.onnx")))
    assert 2 * table.total.macs / 1e9 == pytest.approx(LIGHT[name], abs=0.0005)
    assert table.total.basis == "exact"


def test_resnet_has_exactly_its_known_products() -> None:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    table = count(to_graph(read_model(folder / "light_resnet50.onnx")))
    assert 2 * table.total.macs == 8_178_368_512


def test_every_operator_of_the_standard_has_a_rule() -> None:
    missing = [
        f"{schema.domain or 'ai.onnx'}::{schema.name}"
        for schema in onnx.defs.get_all_schemas()
        if find(schema.name, schema.domain or "ai.onnx") is None
    ]
    assert missing == []


@pytest.mark.parametrize("release", releases())
def test_every_operator_that_onnx_runtime_has_a_kernel_for_has_a_rule(release: str) -> None:
    kernels = listing(release)["kernels"]
    names = {
        (domain, op_type)
        for provider in kernels.values()
        for domain, ops in provider.items()
        for op_type in ops
    }
    assert len(names) > 330
    assert [name for name in sorted(names) if find(name[1], name[0]) is None] == []
