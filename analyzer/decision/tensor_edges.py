"""Tensors between units: one by one, and as the arrays that a minimum cut works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Bools, Ints

HOST = -1  # where inputs come from, outputs go to, and operators without a CUDA kernel run


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEdge:
    """A tensor that a cut may cross, and then has to be copied: one edge to all its readers.

    Attributes:
        tensor: Its name.
        producer: Unit that writes it on the GPU when that unit is there; ``HOST`` if it is on the host anyway.
        readers: Other units that need it where they are.
        host: Whether it is needed on the host anyway.
        is_input, is_output: Whether the caller feeds it, whether the caller gets it.
    """

    tensor: str
    producer: int
    readers: tuple[int, ...]
    host: bool
    is_input: bool = False
    is_output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arcs:
    """The network of a minimum cut, for whatever costs.

    Vertices are the source (0), the sink (1), then a unit each, then helpers of edges with several readers.

    Attributes:
        start, end: Vertices of each arc.
        cost: Which cost an arc has, an index into those of ``EdgeArrays.arcs``.
        vertices: How many there are.
    """

    start: Ints
    end: Ints
    cost: Ints
    vertices: int


class EdgeArrays:
    """The edges of a problem, tensors between so many units, as arrays."""

    SOURCE, SINK, UNITS = 0, 1, 2

    def __init__(self, units: int, edges: Sequence[TensorEdge]) -> None:
        self._count = len(edges)
        self._producer = np.array([edge.producer for edge in edges], dtype=np.int64)
        self._host = np.array([edge.host for edge in edges], dtype=np.bool_)
        self._reader = np.array([unit for edge in edges for unit in edge.readers], dtype=np.int64)
        readers = np.array([len(edge.readers) for edge in edges], dtype=np.int64)
        self._edge_of_reader = np.repeat(np.arange(self._count), readers)
        self.arcs = self._arcs(units, edges)

    def crossed(self, on_gpu: Bools) -> tuple[Bools, Bools]:
        """Which edges a placement copies to the GPU, and which to the CPU."""
        written_on_gpu = np.append(on_gpu, False)[self._producer]  # HOST is the last
        reader_on_gpu = on_gpu[self._reader]
        read_on_gpu = self._with_reader(reader_on_gpu)
        read_on_cpu = self._with_reader(~reader_on_gpu) | self._host
        return ~written_on_gpu & read_on_gpu, written_on_gpu & read_on_cpu

    def _with_reader(self, which: Bools) -> Bools:
        """Edges that have one of these readers."""
        found = np.zeros(self._count, dtype=np.bool_)
        found[self._edge_of_reader[which]] = True
        return found

    def _arcs(self, units: int, edges: Sequence[TensorEdge]) -> Arcs:
        """From, to, cost when the first is on the CPU's side and the second on the GPU's.

        Costs are numbered: each unit's on the GPU, each unit's on the CPU, each edge's copy to the GPU, each
        edge's copy to the CPU, and at last one that is never paid.
        """
        inward, outward = 2 * units, 2 * units + self._count
        never = outward + self._count
        arcs: list[tuple[int, int, int]] = []
        for unit in range(units):
            arcs.append((self.SOURCE, self.UNITS + unit, unit))
            arcs.append((self.UNITS + unit, self.SINK, units + unit))
        helper = self.UNITS + units
        for position, edge in enumerate(edges):
            producer = self.SOURCE if edge.producer == HOST else self.UNITS + edge.producer
            readers = [self.UNITS + unit for unit in edge.readers]
            if len(readers) == 1:  # the common case needs no vertex of its own
                arcs.append((producer, readers[0], inward + position))
            elif readers:
                arcs.append((producer, helper, inward + position))
                # The vertex joins the GPU's side with the first reader there: one copy is paid, more readers
                # are free.
                arcs += [(helper, reader, never) for reader in readers]
                helper += 1
            if producer == self.SOURCE:
                continue
            if edge.host:  # needed on the host whatever its readers do: the copy hangs on the producer alone
                arcs.append((self.SOURCE, producer, outward + position))
            elif len(readers) == 1:
                arcs.append((readers[0], producer, outward + position))
            else:
                arcs.append((helper, producer, outward + position))
                arcs += [(reader, helper, never) for reader in readers]
                helper += 1
        columns = np.array(arcs, dtype=np.int64).reshape(-1, 3).T
        return Arcs(start=columns[0], end=columns[1], cost=columns[2], vertices=helper)
