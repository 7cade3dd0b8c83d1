"""The nodes that a [CUDA, CPU] session records, by name, and where it puts each of them.

ONNX Runtime rewrites the graph before it asks providers (level 1): nodes that it makes have names of its own.
Both are read off the graph that the CPU's session saves at that level; where each node goes follows from the
placement of the operators that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzer.graph import Graph
from analyzer.ort.execution import NodePlacement, Placement, Provider
from analyzer.ort.function_inlining import expand
from analyzer.ort.fusion_mapping import Region, regions
from analyzer.ort.kernels import registry
from analyzer.ort.simplify import simplify

if TYPE_CHECKING:
    import onnx

# What insert_cast_transformer.cc puts around operators without a float16 kernel comes after the providers were
# asked.
_INSERTED_LATER = "InsertedPrecisionFreeCast_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOne:
    """A graph after ONNX Runtime's level 1, whatever the providers.

    Attributes:
        graph: The exported graph.
        proto: What the CPU's session saves at that level; weights are not needed.
        regions: Its nodes with the operators that they stand for.
    """

    graph: Graph
    proto: onnx.ModelProto
    regions: tuple[Region, ...]

    @classmethod
    def of(cls, graph: Graph, proto: onnx.ModelProto) -> LevelOne:
        """Map the saved graph's nodes to the exported graph's operators."""
        return cls(graph=graph, proto=proto, regions=regions(graph, proto))

    def together(self) -> tuple[tuple[int, ...], ...]:
        """Operators that level 1 makes one thing of: an annotation of a part would be lost or split it."""
        return tuple(region.members for region in self.regions if len(region.members) > 1)

    def gpu_only(self, release: str = "") -> frozenset[int]:
        """Operators that no annotation holds on the CPU, since its provider has no kernel for their own types.

        ``release`` is of ONNX Runtime; empty for the newest that is known.

        It would run their definition, or themselves between casts. But once ONNX Runtime has put a definition
        in some operator's place it asks all providers anew, and what the CPU's had not taken goes to CUDA's.
        """
        defined = self._members(lambda node: not node.name)
        # What is cast has a name of its own, also where the casts between two such operators cancelled.
        cast = {
            name for node in self.proto.graph.node for name in node.input if name.startswith(_INSERTED_LATER)
        }
        if self.defined(release):
            return defined | self._members(lambda node: not cast.isdisjoint(node.input))
        return defined | self._merged_later(cast)

    def _merged_later(self, cast: Set[str]) -> frozenset[int]:
        """Return products between casts that a bias is added to: level 2 still makes a Gemm of them.

        Of attention level 1 leaves such a pair alone (``preserve_attention_pattern`` of matmul_add_fusion.cc).
        What no provider has taken by then is recorded under the name that level 2 gives it.
        """
        added = {name for node in self.proto.graph.node if node.op_type == "Add" for name in node.input}
        products = {
            node.name
            for node in self.proto.graph.node
            if node.op_type == "MatMul"
            and not cast.isdisjoint(node.input)
            and not added.isdisjoint(node.output)
        }
        return self._members(lambda node: node.name in products)

    def _members(self, applies: Callable[[onnx.NodeProto], bool]) -> frozenset[int]:
        """Return operators of the regions in which something applies to an executed node."""
        return frozenset(
            index for region in self.regions if any(map(applies, _executed(region))) for index in region.members
        )

    def defined(self, release: str = "") -> frozenset[int]:
        """Return operators in whose place ONNX Runtime puts their definition: no provider has a kernel."""
        simplified = simplify(self.graph, registry(release))
        left = expand(self.graph, simplified.release, without=simplified.folded | simplified.removed)
        if left.graph is self.graph:
            return frozenset()
        return frozenset(
            owner
            for node, owner in zip(left.graph.nodes, left.owners, strict=True)
            if node.op_type != self.graph.nodes[owner].op_type
        )

    def nodes(self, placement: Placement) -> dict[str, Provider]:
        """Return where a session puts every node that it has a name for.

        Returns:
            The provider by node name, those inside of bodies included. Nodes that ONNX Runtime makes of a
            function's definition have no name.
        """
        return dict(_named(self, placement))


def _executed(region: Region) -> Iterator[onnx.NodeProto]:
    nodes = (region.main, *region.others)
    return (node for node in nodes if not node.name.startswith(_INSERTED_LATER))


def _named(made: LevelOne, placement: Placement) -> Iterator[tuple[str, Provider]]:
    graph, index_of = made.graph, {node.name: node.index for node in made.graph.nodes}
    defined = made.defined(placement.release)
    for region in made.regions:
        named = [node for node in _executed(region) if node.name]
        if not named:
            # The CPU's provider lacks a kernel and runs the definition; beside CUDA's the operator stays.
            yield from (
                (graph.nodes[index].name, placement.nodes[index].provider)
                for index in region.members
                if placement.nodes[index].provider == "cuda" and index not in defined
            )
        for node in named:
            own = index_of.get(node.name)
            place = placement.nodes[own] if own is not None else _of_region(placement, region)
            if place is not None:
                yield node.name, place.provider
    yield from _inside(graph, placement, made.proto.graph.node)


def _of_region(placement: Placement, region: Region) -> NodePlacement | None:
    """Return where a node of ONNX Runtime's own making goes: where the operators are that it was made of."""
    runs = [placement.nodes[index] for index in region.members if placement.nodes[index].why != "folded"]
    # Groups are annotated as wholes; what is left apart computes shapes, and follows the data.
    return next((place for place in runs if place.why != "shape-arithmetic"), runs[0] if runs else None)


def _inside(
    graph: Graph, placement: Placement, executed: Sequence[onnx.NodeProto]
) -> Iterator[tuple[str, Provider]]:
    """Yield the nodes of bodies, which ONNX Runtime places one graph at a time."""
    import onnx

    by_name: Mapping[str, onnx.NodeProto] = {node.name: node for node in executed}
    for body in placement.bodies:
        holder = by_name.get(graph.nodes[body.operator].name)
        attribute = next((a for a in holder.attribute if a.name == body.name), None) if holder else None
        if attribute is not None:
            model = onnx.ModelProto(graph=attribute.g)
            yield from LevelOne.of(body.graph, model).nodes(body.placement).items()
