"""One model at several opsets against several releases of ONNX Runtime: what falls to the CPU in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.graph import Graph
from analyzer.ort.execution import Placement
from analyzer.ort.kernels import Registry, registry
from analyzer.ort.placement import place
from analyzer.ort.releases_data import releases
from analyzer.ort.simplify import simplify


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlacement:
    """How a release places a model at one opset.

    Attributes:
        release: Version of ONNX Runtime.
        opset: Of the default domain.
        without_kernel: Operators without a CUDA kernel, those in subgraphs among them; what does not run
            (folded, removed) is not counted.
        copies: Copies between the devices inside the graph, one pass through each subgraph among them.
        fails: Why there is no session, else empty.
    """

    release: str
    opset: int
    without_kernel: int
    copies: int
    fails: str = ""


def placements_by_release(graphs: Mapping[int, Graph]) -> tuple[ReleasePlacement, ...]:
    """How each known release places a model, the oldest first, at each opset in rising order.

    Args:
        graphs: The model by the opset that it is written in.
    """
    return tuple(
        _placement(opset, graphs[opset], registry(release))
        for release in releases()
        for opset in sorted(graphs)
    )


def _placement(opset: int, graph: Graph, release: Registry) -> ReleasePlacement:
    simplified = simplify(graph, release)
    placement = place(graph, simplified)
    without, copies = _counted(graph, placement, simplified.removed)
    return ReleasePlacement(
        release=release.version,
        opset=opset,
        without_kernel=without,
        copies=copies,
        fails=release.refuses_opset(opset) or placement.fails,
    )


def _counted(graph: Graph, placement: Placement, removed: frozenset[int]) -> tuple[int, int]:
    """Operators that run and have no CUDA kernel, and copies."""
    without = sum(
        not placed.supported and placed.why != "folded" and node.index not in removed
        for node, placed in zip(graph.nodes, placement.nodes, strict=True)
    )
    copies = len(placement.copies)
    for body in placement.bodies:
        taken_out = simplify(body.graph, registry(placement.release)).removed
        inner_without, inner_copies = _counted(body.graph, body.placement, taken_out)
        without, copies = without + inner_without, copies + inner_copies
    return without, copies
