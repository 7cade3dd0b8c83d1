"""Compares our placement with the judge's ruling, node by node and copy by copy.

What still differs on ONNX's backend node cases, and why:

* ``test_affine_grid_2d_align_corners_expanded`` and ``test_affine_grid_3d_align_corners_expanded``: an ``If``
  whose condition is constant. ONNX Runtime puts the branch in the ``If``'s place, with copies inside it; we
  keep the ``If`` and see no copies there.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import onnx
from court import Judge, Ruling

from analyzer.errors import GraphError
from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Placement
from analyzer.ort.kernels import registry
from analyzer.ort.placement import partition, place
from analyzer.ort.simplify import Simplified, simplify


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How one model compares.

    Attributes:
        nodes: How many nodes could be compared.
        copies: How many copies there are on either side.
        differences: One sentence per node or copy on which the two differ.
        wrong_nodes: How many of the differences are nodes.
    """

    nodes: int = 0
    copies: int = 0
    differences: tuple[str, ...] = ()
    wrong_nodes: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            nodes=self.nodes + other.nodes,
            copies=self.copies + other.copies,
            differences=self.differences + other.differences,
            wrong_nodes=self.wrong_nodes + other.wrong_nodes,
        )

    @property
    def share(self) -> float:
        """Share of the nodes on which both agree."""
        return 1.0 if not self.nodes else 1 - self.wrong_nodes / self.nodes


def backend_models() -> list[tuple[str, onnx.ModelProto]]:
    """ONNX's node cases, with a name for every node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnx.backend.test.loader as loader

        cases = loader.load_model_tests(kind="node")
    models = [(case.name, case.model) for case in cases if case.model is not None]
    assert len(models) == len(cases)
    for _, model in models:
        for index, node in enumerate(model.graph.node):
            node.name = f"node_{index}"
    return models


def of_backend_cases(judge: Judge, release: str | None = None) -> tuple[int, Agreement]:
    """How many node cases a release loads, and how its placement of them compares with ours."""
    total, loaded = Agreement(), 0
    for _, model in backend_models():
        ruling = judge.rule(model)
        if ruling.error:
            continue
        loaded += 1
        try:
            graph = to_graph(model)
        except GraphError:
            continue
        total += compare(graph, ruling, release)
    return loaded, total


def compare(graph: Graph, ruling: Ruling, release: str | None = None) -> Agreement:
    """Our placement of a graph against the ruling on the same model, by the release that ruled."""
    simplified = simplify(graph, registry(release))
    placement = place(graph, simplified)
    if ruling.error:
        expected = placement.fails
        found = () if expected else (f"no session: {ruling.error}",)
        return Agreement(nodes=1, differences=found, wrong_nodes=len(found))
    nodes, wrong = _named(graph, placement, ruling)
    if placement.fails:
        wrong.append(f"predicted that there is no session: {placement.fails}")
    parts, wrong_parts = _parts(graph, simplified, ruling)
    copies, wrong_copies = _copies(graph, placement, ruling)
    return Agreement(
        nodes=nodes + parts,
        copies=copies,
        differences=(*wrong, *wrong_parts, *wrong_copies),
        wrong_nodes=len(wrong) + len(wrong_parts),
    )


def _named(graph: Graph, placement: Placement, ruling: Ruling) -> tuple[int, list[str]]:
    """Nodes of the graph that ONNX Runtime places under their own name or one derived from it."""
    named = {node.name: placed for node, placed in zip(graph.nodes, placement.nodes, strict=True)}
    seen: set[str] = set()
    wrong: list[str] = []
    count = 0
    for name, op_type, provider in ruling.nodes:
        placed = named.get(name) or named.get(name.split("/")[0])
        if placed is None or not name:
            continue
        seen.add(name)
        count += 1
        if placed.why == "folded":
            wrong.append(f"{op_type} {name}: folded, but is on {provider}")
        elif placed.provider != provider:
            wrong.append(f"{op_type} {name}: {placed.provider} ({placed.why}), but is on {provider}")
    for node, placed in zip(graph.nodes, placement.nodes, strict=True):
        gone = node.name not in seen and all(t.name in ruling.constants for t in node.present_outputs)
        if gone and placed.why != "folded":
            count += 1
            wrong.append(f"{node.op_type} {node.name}: {placed.why}, but is folded")
    return count, wrong


def _parts(graph: Graph, simplified: Simplified, ruling: Ruling) -> tuple[int, list[str]]:
    """Nodes of definitions that ONNX Runtime put in the place of composite operators: they have no name."""
    expanded, verdicts = partition(graph, simplified)
    owners = Counter(expanded.owners)
    composite = {owner for owner, count in owners.items() if count > 1}
    composite |= {
        owner
        for node, owner in zip(expanded.graph.nodes, expanded.owners, strict=True)
        if node.op_type != graph.nodes[owner].op_type
    }
    inside = {child for node in graph.nodes for body in node.graphs.values() for child in _names(body)}
    if not composite or inside:
        return 0, []
    mine = Counter(
        (expanded.graph.nodes[index].op_type, verdict.provider)
        for index, verdict in verdicts.items()
        if expanded.owners[index] in composite
    )
    theirs = Counter((op_type, provider) for name, op_type, provider in ruling.nodes if not name)
    wrong = [f"part {op} on {provider}: {n} times too often" for (op, provider), n in (mine - theirs).items()]
    return sum(theirs.values()), wrong


def _names(body: Graph) -> Iterable[str]:
    return (node.name for node in body.nodes)


def _copies(graph: Graph, placement: Placement, ruling: Ruling) -> tuple[int, list[str]]:
    known = {tensor.name for tensor in graph.inputs} | set(graph.producer)
    mine = {(copy.direction, copy.tensor) for copy in placement.copies}
    theirs = ruling.tensors_copied
    own = Counter(way for way, tensor in mine if tensor not in known)
    parts = Counter(way for way, tensor in theirs if tensor not in known)
    wrong = [
        f"copy {direction} of {tensor}: predicted" for direction, tensor in mine - theirs if tensor in known
    ]
    wrong += [f"copy {direction} of {tensor}: missed" for direction, tensor in theirs - mine if tensor in known]
    wrong += [
        f"copies {direction} inside a composite operator differ" for direction in (own - parts) + (parts - own)
    ]
    return len(mine | theirs), wrong
