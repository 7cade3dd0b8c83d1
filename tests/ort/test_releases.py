"""Kernels of several releases of ONNX Runtime, on facts that its own pull requests and issues tell."""

from __future__ import annotations

import onnx
import pytest

from analyzer.errors import UsageError
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.kernels import find_release, registry
from analyzer.ort.placement import place
from analyzer.ort.releases import placements_by_release
from analyzer.ort.releases_data import REGISTRY_VERSION, releases
from analyzer.ort.simplify import simplify

# Of microsoft/onnxruntime: operator, opset, releases that lack its CUDA kernel, releases that have it, source.
# Issue 27729 (March 2026, before 1.25) lists the newest opset with a kernel then and the request that adds one.
FACTS = [
    ("MaxPool", 21, (), ("1.24.4", "1.27.0"), "27715: 12 is open-ended to 21"),
    ("MaxPool", 22, ("1.24.4", "1.27.0"), (), "27715: 22 is not merged"),
    ("GlobalAveragePool", 20, (), ("1.24.4", "1.27.0"), "27733: 1 before"),
    ("GlobalAveragePool", 22, ("1.24.4",), ("1.25.1", "1.27.0"), "27733, merged 2026-03-20"),
    ("GlobalMaxPool", 22, ("1.24.4",), ("1.25.1", "1.27.0"), "27733, merged 2026-03-20"),
    ("Identity", 25, ("1.24.4",), ("1.25.1", "1.27.0"), "27728"),
    ("Flatten", 21, ("1.24.4",), ("1.25.1", "1.27.0"), "27728"),
    ("Reshape", 24, ("1.24.4", "1.26.0"), ("1.27.0",), "28368 of 2026-05-05 misses it; 27742"),
    ("Cast", 24, ("1.24.4", "1.26.0"), ("1.27.0",), "28368 of 2026-05-05 misses it; 27744"),
    ("Round", 22, ("1.24.4", "1.26.0"), ("1.27.0",), "27754, merged after 2026-05-06"),
    ("Round", 21, (), ("1.24.4", "1.27.0"), "27754: 11 before"),
    ("ConvTranspose", 22, ("1.24.4",), ("1.27.0",), "26393 misses it; 27710"),
    ("Relu", 20, (), ("1.24.4", "1.27.0"), "docs/OperatorKernels.md: 14+"),
]


def node(op_type: str, opset: int) -> Node:
    def tensor(name: str) -> Tensor:
        return Tensor(name=name, shape=(1, 2, 3, 3), dtype=DTYPES["float32"])

    return Node(
        index=0, name="it", op_type=op_type, version=opset, inputs=(tensor("x"),), outputs=(tensor("y"),)
    )


@pytest.mark.parametrize(
    ("op_type", "opset", "release", "there"),
    [
        (op_type, opset, release, there)
        for op_type, opset, without, having, _ in FACTS
        for there, named in ((False, without), (True, having))
        for release in named
    ],
)
def test_a_release_has_the_cuda_kernels_that_its_history_tells(
    op_type: str, opset: int, release: str, there: bool
) -> None:
    assert registry(release).has_kernel("cuda", node(op_type, opset)) is there


# onnx/docs/Versioning.md: ONNX 1.20 has opset 25, 1.21 opset 26; which ONNX a release holds stands in its
# cmake/deps.txt, and issue 27729 names 1.20.1 for what came before 1.25.
def test_the_newest_opset_is_that_of_the_onnx_inside() -> None:
    assert registry("1.24.4").newest_opset == 25
    assert registry("1.25.1").newest_opset == 26
    assert registry("1.24.4").refuses_opset(26)
    assert not registry("1.24.4").refuses_opset(25)


def test_nodes_can_be_assigned_by_their_annotation_from_1_25_on() -> None:
    by_release = {release: registry(release).layer_assignment for release in releases()}
    assert not by_release.pop("1.24.4")
    assert all(by_release.values())


def test_without_a_name_the_newest_release_is_meant() -> None:
    assert registry() is registry(REGISTRY_VERSION) is registry("")
    assert releases()[-1] == REGISTRY_VERSION
    assert list(releases()) == sorted(releases(), key=lambda text: tuple(map(int, text.split("."))))


def test_a_minor_release_is_its_newest_patch_and_a_patch_is_itself() -> None:
    assert find_release("1.24") == find_release("1.24.4") == "1.24.4"
    assert find_release("1.31") == "1.31.1"


@pytest.mark.parametrize("text", ["1.23", "1.31.0", "1", "1.3", "latest", "1.24.4 ", "../1.24.4"])
def test_a_release_that_is_not_known_is_one_error_that_lists_the_known_ones(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_release(text)
    assert text in caught.value.message
    assert all(release in (caught.value.hint or "") for release in releases())


def graph(opset: int, body: str, result: str = "float[1,2,1,1] y") -> Graph:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[1,2,4,4] x) => ({result}) {{ {body} }}'
    return to_graph(onnx.parser.parse_model(text))


POOLED = "a = Relu (x) y = GlobalAveragePool (a)"


def test_a_model_is_placed_by_the_release_that_simplified_it() -> None:
    pooled = graph(22, POOLED)
    old, new = (place(pooled, simplify(pooled, registry(release))) for release in ("1.24.4", "1.25.1"))
    assert [placed.provider for placed in old.nodes] == ["cuda", "cpu"]
    assert [placed.provider for placed in new.nodes] == ["cuda", "cuda"]
    assert [(copy.tensor, copy.direction) for copy in old.copies] == [("a", "to_cpu")]
    assert new.copies == ()
    assert (old.release, new.release) == ("1.24.4", "1.25.1")
    assert place(pooled).release == REGISTRY_VERSION


def test_releases_and_opsets_are_told_side_by_side() -> None:
    rows = placements_by_release({opset: graph(opset, POOLED) for opset in (22, 20)})
    assert [(row.release, row.opset) for row in rows] == [
        (release, opset) for release in releases() for opset in (20, 22)
    ]
    assert all(not row.fails for row in rows)
    # By the facts above: 1.24 alone lacks GlobalAveragePool at opset 22.
    lacking = {(row.release, row.opset) for row in rows if row.without_kernel}
    assert lacking == {("1.24.4", 22)}
    assert {row.copies for row in rows if row.without_kernel} == {1}
    assert {row.copies for row in rows if not row.without_kernel} == {0}


def test_a_release_that_does_not_load_the_opset_fails() -> None:
    rows = {
        row.release: row for row in placements_by_release({26: graph(26, "y = Relu (x)", "float[1,2,4,4] y")})
    }
    assert rows["1.24.4"].fails == "ONNX Runtime 1.24.4 loads opsets up to 25; this model is opset 26"
    assert rows["1.25.1"].fails == ""


def test_operators_in_subgraphs_count_and_those_that_do_not_run_do_not() -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 22]>
        g (float[1,2,4,4] x, bool c) => (float[1,2,1,1] y) {
            same = Identity (x)
            y = If (c) <
                then_branch = one () => (float[1,2,1,1] a) { r = Relu (same) a = GlobalAveragePool (r) },
                else_branch = two () => (float[1,2,1,1] b) { b = GlobalAveragePool (same) }
            >
        }
    """
    rows = {row.release: row for row in placements_by_release({22: to_graph(onnx.parser.parse_model(text))})}
    # In 1.24 both pools, and the If, whose kernel ends at opset 20 (request 27728); the Identity does not run.
    assert rows["1.24.4"].without_kernel == 3
    assert rows["1.25.1"].without_kernel == 0
