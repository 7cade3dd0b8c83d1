"""Groups: what a session executes, and which operators of the exported graph each executed node stands for.

Predicted from the rules of ``ort/fusion_rules.py`` where nothing is run, else read off ONNX Runtime's own
optimised graph by ``ort/fusion_mapping.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analyzer.graph import Graph, Node
from analyzer.ort.execution import Group, Placement, Provider, Session, launches
from analyzer.ort.fusion_mapping import Region, regions
from analyzer.ort.fusion_rules import RULES
from analyzer.ort.fusion_view import Fused, View, in_execution_order
from analyzer.ort.placement import place
from analyzer.ort.rewriting import QUANTIZERS
from analyzer.ort.simplify import Simplified, passed_input, simplify
from analyzer.training_operators import definition

if TYPE_CHECKING:
    import onnx

# Stands for the number that the profile gives an unnamed node (``<type>_<number>``), which the saved graph
# lacks. No name of ONNX Runtime's own ends so.
_UNNAMED = "_?"


def predicted_groups(
    graph: Graph, session: Session, placement: Placement | None = None, *, simplified: Simplified | None = None
) -> tuple[Group, ...]:
    """Predicts what a session executes from our table of ONNX Runtime's fusions.

    The placement of the CUDA session, and what level 1 leaves of the graph, are worked out where they are None.

    Returns:
        One group per executed node, in execution order. Operators that are folded are in none.
    """
    simplified = simplified or simplify(graph)
    placed = (placement or place(graph, simplified)).nodes if session == "cuda" else ()
    fused = {
        node.index: Fused(
            op_type=node.op_type,
            members=[node.index],
            provider=placed[node.index].provider if placed else "cpu",
        )
        for node in graph.nodes
        if node.index not in simplified.folded and node.index not in simplified.removed
    }
    view = View(graph=graph, simplified=simplified, group=fused)
    for rule in RULES:
        rule(view)
    _adopt_removed(graph, simplified, fused)
    return tuple(_predicted(graph, session, group) for group in in_execution_order(fused))


def groups_from_optimized(graph: Graph, optimized: onnx.ModelProto, session: Session) -> tuple[Group, ...]:
    """Read what a session executes off ONNX Runtime's own optimised graph.

    ``graph`` has the node names that ONNX Runtime was given; ``optimized`` is what it saved under
    ``optimized_model_filepath``, whose weights are not needed.

    Returns:
        One group per executed node or cluster of nodes, in execution order; ``name`` and ``parts`` are the
        names in ONNX Runtime's profile (``executed_names`` finds those that it makes up). Each operator that
        is not folded is in exactly one.
    """
    placed = place(graph).nodes if session == "cuda" else ()

    def provider(region: Region) -> Provider:
        # Fusions never join nodes of two providers, but for the Q and DQ nodes around one on the CPU.
        members = region.members
        main = next(
            (i for i in members if graph.nodes[i].op_type not in QUANTIZERS), members[-1] if members else 0
        )
        return placed[main].provider if placed and members else "cpu"

    return tuple(
        Group(
            session=session,
            name=_name(region.main),
            op_type=_op_type(graph, region),
            members=region.members,
            provider=provider(region),
            kernels=sum(
                launches(node.op_type, inputs=sum(map(bool, node.input)))
                for node in (region.main, *region.others)
            ),
            parts=tuple(map(_name, region.others)),
        )
        for region in regions(graph, optimized)
    )


def executed_names(groups: Sequence[Group], profiled: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return the names in a profile that belong to each group: its main node's and its parts'.

    Nodes of a definition that ONNX Runtime put in the place of a composite operator have no name; its profile
    calls them by type and a number of its own. They are given out by type, in the order of these numbers.
    """
    rest = dict.fromkeys(profiled)  # a set that keeps its order
    named = [[name for name in (group.name, *group.parts) if name in rest] for group in groups]
    for names in named:
        for name in names:
            rest.pop(name, None)
    by_type: dict[str, list[str]] = {}
    for name in sorted(rest, key=_number):
        by_type.setdefault(name.rpartition("_")[0], []).append(name)
    for group, names in zip(groups, named, strict=True):
        for name in (group.name, *group.parts):
            if name.endswith(_UNNAMED) and by_type.get(name.removesuffix(_UNNAMED)):
                names.append(by_type[name.removesuffix(_UNNAMED)].pop(0))
    return tuple(map(tuple, named))


def _number(name: str) -> int:
    number = name.rpartition("_")[2]
    return int(number) if number.isdigit() else 0


def _name(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type}{_UNNAMED}"


def _op_type(graph: Graph, region: Region) -> str:
    # What ONNX Runtime made of a function's body has no name; the operator tells more than the body's first
    # part.
    alone = not region.main.name and len(region.members) == 1
    return graph.nodes[region.members[0]].op_type if alone else region.main.op_type


def _predicted(graph: Graph, session: Session, group: Fused) -> Group:
    members = tuple(sorted(group.members))
    # The operator after which the node is named (the Conv of a FusedConv), else the first.
    main = max(members, key=lambda index: (graph.nodes[index].op_type in group.op_type, -index))
    node = graph.nodes[main]
    inputs = 3 if _gains_bias(graph, group) else sum(1 for _ in node.present_inputs)
    return Group(
        session=session,
        name=node.name,
        op_type=group.op_type,
        members=members,
        provider=group.provider,
        kernels=_launched(node, group.op_type, inputs) + sum(map(launches, group.extra)),
    )


def _gains_bias(graph: Graph, group: Fused) -> bool:
    """Return whether a bias was fused: a Gemm of a MatMul and an Add, a Conv with its normalization."""
    if len(group.members) == 1:
        return False
    given = {graph.nodes[member].op_type for member in group.members}
    return group.op_type == "Gemm" or (group.op_type == "Conv" and bool(given & {"Add", "BatchNormalization"}))


def _launched(node: Node, op_type: str, inputs: int) -> int:
    """Return kernels of a group; those of its definition where it has one."""
    parts = definition(node)
    if parts is None:
        return launches(op_type, inputs=inputs)
    return sum(launches(part.op_type, inputs=len(part.inputs)) for part in parts.nodes)


def _adopt_removed(graph: Graph, simplified: Simplified, fused: dict[int, Fused]) -> None:
    """Operators that are taken out belong to their equal, or to what reads them first, else to their source."""
    # From the last: of two in a row, the reader of the first is the second, which has its owner by then.
    for index in sorted(simplified.removed, reverse=True):
        node = graph.nodes[index]
        names = [tensor.name for tensor in node.present_outputs]
        readers = (reader for name in names for reader in graph.consumers.get(name, ()) if reader in fused)
        owner = simplified.twins.get(index, min(readers, default=None))
        source = passed_input(node)
        if owner is None and source is not None:
            owner = graph.producer.get(simplified.name(source))
        if owner is not None and owner in fused:
            fused[owner].members.append(index)
            fused[index] = fused[owner]
