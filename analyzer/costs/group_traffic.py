"""Counting bytes that must cross memory when each executed group keeps its inner tensors on chip."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from analyzer.costs.cost import Cost
from analyzer.costs.dimensions import OpenSizeError, nbytes
from analyzer.costs.table import CostTable
from analyzer.costs.traffic import read_by_tensor
from analyzer.graph import Graph, Node, Tensor
from analyzer.operators import is_view


class Members(Protocol):
    """A group of operators that are executed as one."""

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of the operators."""


def fused(graph: Graph, table: CostTable, groups: Sequence[Members]) -> tuple[Cost, ...]:
    """The cost of each group: FLOPs are the members' sum, bytes those that cross its border.

    A tensor from outside is read once by the group, however many members read it; one made inside is written
    only if something outside reads it or it is an output of the model.
    """
    needed = {tensor.name for tensor in graph.outputs}
    return tuple(_group(graph, table, tuple(group.members), needed) for group in groups)


def _group(graph: Graph, table: CostTable, members: tuple[int, ...], needed: set[str]) -> Cost:
    whole = table.of(members)
    if len(members) < 2:
        return whole
    # Without those that do not run: all that they give is known before.
    nodes = [
        node
        for node in map(graph.nodes.__getitem__, members)
        if not all(tensor.constant for tensor in node.present_outputs)
    ]
    try:
        read = sum(_read(nodes).values())
        written = sum(nbytes(tensor) for tensor in _written(graph, nodes, set(members), needed))
    except OpenSizeError:
        return dataclasses.replace(whole, bytes_read=None, bytes_written=None)
    return dataclasses.replace(whole, bytes_read=read, bytes_written=written)


def _read(nodes: Sequence[Node]) -> Mapping[str, int]:
    """Bytes of each tensor from outside, by the name under which it enters; views are looked through."""
    alias: dict[str, str] = {}
    inside: set[str] = set()
    sizes: dict[str, int] = {}
    for node in nodes:
        if is_view(node) and node.inputs[0] is not None:
            source = alias.get(node.inputs[0].name, node.inputs[0].name)
            alias.update((tensor.name, source) for tensor in node.present_outputs)
            continue
        for name, size in read_by_tensor(node).items():
            root = alias.get(name, name)
            if root not in inside:
                # One member may read a part of it, as a Gather does, and another all.
                sizes[root] = max(size, sizes.get(root, 0))
        inside.update(tensor.name for tensor in node.present_outputs)
    return sizes


def _written(graph: Graph, nodes: Sequence[Node], members: set[int], needed: set[str]) -> Iterable[Tensor]:
    """Tensors made in the group that leave it; through a view, the tensor that it shows leaves."""
    maker: dict[str, Tensor] = {}
    leaving: dict[str, Tensor] = {}
    for node in nodes:
        for tensor in node.present_outputs:
            if is_view(node) and node.inputs[0] is not None:
                source = maker.get(node.inputs[0].name)
                if source is None:
                    continue
                maker[tensor.name] = source
            else:
                maker[tensor.name] = tensor
            readers = graph.consumers.get(tensor.name, ())
            if tensor.name in needed or any(reader not in members for reader in readers):
                leaving[maker[tensor.name].name] = maker[tensor.name]
    return leaving.values()
