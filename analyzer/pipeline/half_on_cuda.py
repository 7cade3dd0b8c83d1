"""What a CUDA session in 16 bits leaves in 32: operators without such a kernel, and the Casts around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from analyzer import prediction
from analyzer.conversion import HALF, without_half_kernel
from analyzer.costs import count
from analyzer.devices.device import Device
from analyzer.figures import Figure, total
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.ort.execution import Group

_CAST_SINCE = 13  # an opset that knows bfloat16


class WideOperators:
    """Operators of a model in float32 that have no kernel in a narrow type, and the Casts that they need.

    Args:
        graph: The model in float32.
        precision: ``fp16`` or ``bf16``.
        release: Of ONNX Runtime, as in ``Placement``.
    """

    def __init__(self, graph: Graph, precision: str, release: str = "") -> None:
        self._graph = graph
        self._narrow = HALF[precision]
        self.indices = frozenset(without_half_kernel(graph, self._narrow, release=release))

    def among(self, groups: Sequence[Group]) -> npt.NDArray[np.bool_]:
        """Which of the groups of a session on CUDA run in float32."""
        flags = [group.provider == "cuda" and not self.indices.isdisjoint(group.members) for group in groups]
        return np.array(flags, dtype=np.bool_)

    def casts(self, groups: Sequence[Group], gpu: Device, precision: str) -> list[Figure | None]:
        """Time of the Casts before and behind each group; None where its neighbours are wide as well."""
        owners = [
            (tensor, number) for number, group in enumerate(groups) for tensor in self._cast_tensors(group)
        ]
        nodes = tuple(self._cast(index, tensor) for index, (tensor, _) in enumerate(owners))
        graph = Graph(
            name="casts",
            nodes=nodes,
            inputs=tuple({tensor.name: tensor for tensor, _ in owners}.values()),
            outputs=tuple(tensor for node in nodes for tensor in node.present_outputs),
        )
        alone = tuple(
            Group(session="cuda", name=node.name, op_type="Cast", members=(node.index,), provider="cuda")
            for node in nodes
        )
        work = prediction.workload(graph, count(graph), alone)
        times: list[list[Figure]] = [[] for _ in groups]
        for (_, number), time in zip(
            owners, prediction.predict_arrays(work, gpu, precision=precision).estimates(), strict=True
        ):
            if time is not None:
                times[number].append(time)
        return [total(each) if each else None for each in times]

    def _cast_tensors(self, group: Group) -> Iterator[Tensor]:
        graph, members = self._graph, frozenset(group.members)
        read = {t.name: t for index in group.members for t in graph.nodes[index].present_inputs}
        for tensor in read.values():
            writer = graph.producer.get(tensor.name)
            if (
                writer not in members
                and writer not in self.indices
                and not tensor.constant
                and _is_wide(tensor)
            ):
                yield tensor
        for index in group.members:
            for tensor in graph.nodes[index].present_outputs:
                readers = graph.consumers.get(tensor.name, ())
                inside = all(reader in members or reader in self.indices for reader in readers)
                if _is_wide(tensor) and not (readers and inside):
                    yield tensor

    def _cast(self, index: int, tensor: Tensor) -> Node:
        narrow = DTYPES[self._narrow]
        result = Tensor(name=f"{tensor.name}_{index}", shape=tensor.shape, dtype=narrow)
        return Node(
            index=index,
            name=f"Cast_{index}",
            op_type="Cast",
            version=_CAST_SINCE,
            inputs=(tensor,),
            outputs=(result,),
            attributes={"to": narrow.onnx},
        )


def _is_wide(tensor: Tensor) -> bool:
    return tensor.dtype.name == "float32"
