"""Kernels of several releases of ONNX Runtime, on facts that its own pull requests and issues tell."""

from __future__ import annotations

import onnx
import pytest

from analyzer.errors import UsageError
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.kernels import REGISTRY_VERSION, find_release, registry, releases
from analyzer.ort.placement import place, placements_by_release
from analyzer.ort.simplify import simplify

# Of microsoft/onnxruntime: operator and opset of a CUDA kernel that every known release has, and its source.
# Issue 27729 (March 2026) lists the newest opset with a kernel before, and the request that adds one.
FACTS = [
    ("MaxPool", 21, "27715: 12 is open-ended to 21"),
    ("GlobalAveragePool", 20, "27733: 1 before"),
    ("GlobalAveragePool", 22, "27733, merged 2026-03-20"),
    ("GlobalMaxPool", 22, "27733, merged 2026-03-20"),
    ("Identity", 25, "27728"),
    ("Flatten", 21, "27728"),
    ("Reshape", 24, "27742"),
    ("Cast", 24, "27744"),
    ("Round", 22, "27754, merged after 2026-05-06"),
    ("Round", 21, "27754: 11 before"),
    ("ConvTranspose", 22, "27710"),
    ("Relu", 20, "docs/OperatorKernels.md: 14+"),
]


def node(op_type: str, opset: int) -> Node:
    def tensor(name: str) -> Tensor:
        return Tensor(name=name, shape=(1, 2, 3, 3), dtype=DTYPES["float32"])

    return Node(
        index=0, name="it", op_type=op_type, version=opset, inputs=(tensor("x"),), outputs=(tensor("y"),)
    )


@pytest.mark.parametrize("release", releases())
@pytest.mark.parametrize(("op_type", "opset", "source"), FACTS)
def test_a_release_has_the_cuda_kernels_that_its_history_tells(
    release: str, op_type: str, opset: int, source: str
) -> None:
    assert registry(release).has_kernel("cuda", node(op_type, opset))


# onnx/docs/Versioning.md: ONNX 1.21 has opset 26.
def test_the_newest_opset_is_that_of_the_onnx_inside() -> None:
    assert registry("1.28.0").newest_opset == 26
    assert not registry("1.28.0").refuses_opset(26)
    assert registry("1.28.0").refuses_opset(27) == (
        "ONNX Runtime 1.28.0 loads opsets up to 26; this model is opset 27"
    )


@pytest.mark.parametrize("release", releases())
def test_a_release_loads_files_of_the_ir_version_of_the_onnx_inside(release: str) -> None:
    newest = {opset: ir for _, ir, opset, *_ in onnx.helper.VERSION_TABLE}[registry(release).newest_opset]
    assert not registry(release).refuses_ir(newest)
    assert registry(release).refuses_ir(newest + 1)


def test_without_a_name_the_newest_release_is_meant() -> None:
    assert registry() is registry(REGISTRY_VERSION) is registry("")
    assert releases()[-1] == REGISTRY_VERSION
    assert len(releases()) == 4
    assert list(releases()) == sorted(releases(), key=lambda text: tuple(map(int, text.split("."))))


def test_a_minor_release_is_its_newest_patch_and_a_patch_is_itself() -> None:
    assert find_release("1.28") == find_release("1.28.0") == "1.28.0"
    assert find_release("1.31") == "1.31.1"


@pytest.mark.parametrize("text", ["1.27", "1.31.0", "1", "1.3", "latest", "1.28.0 ", "../1.28.0"])
def test_a_release_that_is_not_known_is_one_error_that_lists_the_known_ones(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_release(text)
    assert text in caught.value.message
    assert all(release in (caught.value.hint or "") for release in releases())


def graph(opset: int, body: str, result: str = "bfloat16[1,2,4,4] y") -> Graph:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g (bfloat16[1,2,4,4] x) => ({result}) {{ {body} }}'
    return to_graph(onnx.parser.parse_model(text))


# LpNormalization has a CUDA kernel of bfloat16 from 1.30 on (the releases' own listings).
NORMED = "a = Relu (x) y = LpNormalization (a)"


def test_a_model_is_placed_by_the_release_that_simplified_it() -> None:
    normed = graph(22, NORMED)
    old, new = (place(normed, simplify(normed, registry(release))) for release in ("1.29.0", "1.30.0"))
    assert [placed.provider for placed in old.nodes] == ["cuda", "cpu"]
    assert [placed.provider for placed in new.nodes] == ["cuda", "cuda"]
    assert [(copy.tensor, copy.direction) for copy in old.copies] == [("a", "to_cpu")]
    assert new.copies == ()
    assert (old.release, new.release) == ("1.29.0", "1.30.0")
    assert place(normed).release == REGISTRY_VERSION


def test_releases_and_opsets_are_told_side_by_side() -> None:
    rows = placements_by_release({opset: graph(opset, NORMED) for opset in (22, 20)})
    assert [(row.release, row.opset) for row in rows] == [
        (release, opset) for release in releases() for opset in (20, 22)
    ]
    by_key = {(row.release, row.opset): row for row in rows}
    assert (by_key["1.29.0", 22].without_kernel, by_key["1.29.0", 22].copies) == (1, 1)
    assert (by_key["1.30.0", 22].without_kernel, by_key["1.30.0", 22].copies) == (0, 0)


def test_operators_in_subgraphs_count_and_those_that_do_not_run_do_not() -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 22]>
        g (bfloat16[1,2,4,4] x, bool c) => (bfloat16[1,2,4,4] y) {
            same = Identity (x)
            y = If (c) <
                then_branch = one () => (bfloat16[1,2,4,4] a) { r = Relu (same) a = LpNormalization (r) },
                else_branch = two () => (bfloat16[1,2,4,4] b) { b = LpNormalization (same) }
            >
        }
    """
    rows = {row.release: row for row in placements_by_release({22: to_graph(onnx.parser.parse_model(text))})}
    # In 1.29 both norms; the Identity does not run.
    assert rows["1.29.0"].without_kernel == 2
    assert rows["1.30.0"].without_kernel == 0
