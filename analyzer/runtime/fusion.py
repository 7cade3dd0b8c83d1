"""Groups: what a session executes, and which operators of the exported graph each executed node stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.graph import Graph
from analyzer.runtime.execution import Group, Placement, Provider, Session
from analyzer.runtime.fusion_mapping import Region, regions
from analyzer.runtime.fusion_rules import RULES
from analyzer.runtime.fusion_view import Fused, View, order
from analyzer.runtime.launches import launches
from analyzer.runtime.placement import place
from analyzer.runtime.simplify import Simplified, simplify

if TYPE_CHECKING:
    import onnx


def predicted_groups(graph: Graph, session: Session, placement: Placement | None = None) -> tuple[Group, ...]:
    """Predicts what a session executes from our table of ONNX Runtime's fusions.

    Args:
        graph: The exported graph.
        session: ``cpu`` or ``cuda`` (with the CPU behind it).
        placement: Of the CUDA session; worked out where it is None.

    Returns:
        One group per executed node, in execution order. Operators that are folded are in none.
    """
    left = simplify(graph)
    placed = (placement or place(graph)).nodes if session == "cuda" else ()
    fused = {
        node.index: Fused(
            op_type=node.op_type,
            members=[node.index],
            provider=placed[node.index].provider if placed else "cpu",
        )
        for node in graph.nodes
        if node.index not in left.folded and node.index not in left.removed
    }
    view = View(graph=graph, left=left, group=fused)
    for rule in RULES:
        rule(view)
    _adopt_removed(graph, left, fused)
    return tuple(_predicted(graph, session, group) for group in order(fused))


def groups_from_optimized(
    graph: Graph, optimized: onnx.ModelProto, session: Session, *, placement: Placement | None = None
) -> tuple[Group, ...]:
    """Reads what a session executes off ONNX Runtime's own optimised graph.

    Args:
        graph: The exported graph, with the node names that ONNX Runtime was given.
        optimized: What it saved under ``optimized_model_filepath``; weights are not needed.
        session: Which session it was.
        placement: Of the CUDA session; worked out where it is None.

    Returns:
        One group per executed node or cluster of nodes, in execution order; ``name`` and ``parts`` are the
        names in ONNX Runtime's profile. Each operator that is not folded is in exactly one.
    """
    placed = (placement or place(graph)).nodes if session == "cuda" else ()

    def provider(members: tuple[int, ...]) -> Provider:
        return placed[members[-1]].provider if placed and members else "cpu"

    return tuple(
        Group(
            session=session,
            name=region.main.name or region.main.op_type,
            op_type=region.main.op_type,
            members=region.members,
            provider=provider(region.members),
            kernels=_kernels(region),
            parts=tuple(node.name or node.op_type for node in region.others),
        )
        for region in regions(graph, optimized)
    )


def _kernels(region: Region) -> int:
    nodes = (region.main, *region.others)
    return sum(launches(node.op_type, inputs=sum(map(bool, node.input))) for node in nodes)


def _predicted(graph: Graph, session: Session, group: Fused) -> Group:
    members = tuple(sorted(group.members))
    main = max(members, key=lambda index: (graph.nodes[index].op_type in group.op_type, -index))
    node = graph.nodes[main]
    inputs = 3 if group.op_type == "Gemm" and len(members) > 1 else sum(1 for _ in node.present_inputs)
    return Group(
        session=session,
        name=node.name,
        op_type=group.op_type,
        members=members,
        provider=group.provider,
        kernels=launches(group.op_type, inputs=inputs) + sum(map(launches, group.extra)),
    )


def _adopt_removed(graph: Graph, left: Simplified, fused: dict[int, Fused]) -> None:
    """Operators that are taken out belong to their equal, or to what reads them first, else to their source."""
    for index in sorted(left.removed, reverse=True):
        node = graph.nodes[index]
        names = [tensor.name for tensor in node.present_outputs]
        readers = (reader for name in names for reader in graph.consumers.get(name, ()) if reader in fused)
        owner = left.twins.get(index, min(readers, default=None))
        if owner is None and node.inputs and node.inputs[0] is not None:
            owner = graph.producer.get(left.name(node.inputs[0]))
        if owner is not None and owner in fused:
            fused[owner].members.append(index)
            fused[index] = fused[owner]
