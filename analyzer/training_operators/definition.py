"""Writing a definition: nodes of ONNX's own operators with the shapes that follow from the compact one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from analyzer.graph import DEFAULT_DOMAIN, DTYPES, DType, Node, Tensor, broadcast

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

DOMAIN = "analyzer.training"
# The definitions use no operator that is newer, and none in a form that later opsets refuse: axes are inputs
# (ReduceSum since 13, ReduceMean since 18), and the export's default is newer.
OPSET = 18


@dataclass(kw_only=True)
class Definition:
    """The nodes of one definition, in execution order.

    Attributes:
        node: The compact operator; inner names start with its own.
        opset: Opset of the default domain.
        literals: Constants that the nodes read, with their values.
    """

    node: Node
    opset: int
    nodes: list[Node] = field(default_factory=list)
    literals: list[Tensor] = field(default_factory=list)

    def const(self, value: ArrayLike | range, dtype: str) -> Tensor:
        """Return a constant of a few elements."""
        import numpy as np

        array: NDArray[Any] = np.asarray(value if not isinstance(value, range) else list(value), dtype)
        # Unique in the graph, since the compact node's name is.
        name = f"{self.node.name}/c{len(self.literals)}"
        tensor = Tensor(
            name=name, shape=array.shape, dtype=DTYPES[dtype], constant=True, initializer=True, value=array
        )
        self.literals.append(tensor)
        return tensor

    def like(self, value: float, tensor: Tensor) -> Tensor:
        """Return a scalar of a tensor's own type."""
        return self.const(value, tensor.dtype.name)

    def op(
        self,
        op_type: str,
        *inputs: Tensor | None,
        shape: Sequence[int] | None = None,
        dtype: DType | None = None,
        into: Tensor | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Add a node with one result.

        Args:
            op_type: Operator of the default domain.
            *inputs: What it reads.
            shape: Of the result; that of all inputs broadcast together where left out.
            dtype: Of the result; the first input's where left out.
            into: The compact operator's own result that this one is.
            **attributes: Attributes.
        """
        present = [tensor for tensor in inputs if tensor is not None]
        if into is None:
            into = Tensor(
                name=f"{self.node.name}/t{len(self.nodes)}",
                shape=tuple(shape) if shape is not None else broadcast(map(sizes, present)),
                dtype=dtype or present[0].dtype,
            )
        # Of the compact operator are module, source line and phase.
        made = replace(
            self.node,
            index=len(self.nodes),
            name=f"{self.node.name}/{op_type}_{len(self.nodes)}",
            op_type=op_type,
            domain=DEFAULT_DOMAIN,
            version=self.opset,
            inputs=inputs,
            outputs=(into,),
            attributes=attributes,
        )
        self.nodes.append(made)
        return into

    def reshape(self, tensor: Tensor, shape: Sequence[int], into: Tensor | None = None) -> Tensor:
        """Return the same elements under another shape."""
        return self.op("Reshape", tensor, self.const(tuple(shape), "int64"), shape=shape, into=into)

    def transpose(self, tensor: Tensor, perm: Sequence[int], into: Tensor | None = None) -> Tensor:
        """Return the axes in another order."""
        shape = sizes(tensor)
        return self.op("Transpose", tensor, shape=[shape[axis] for axis in perm], into=into, perm=tuple(perm))

    def sum(
        self,
        tensor: Tensor,
        axes: Sequence[int],
        *,
        keep: bool = False,
        into: Tensor | None = None,
        kind: str = "Sum",
    ) -> Tensor:
        """Return a reduction over axes, a sum or a ``kind="Mean"``."""
        shape = sizes(tensor)
        dropped = {axis % len(shape) for axis in axes}
        result_shape = [
            1 if axis in dropped else size for axis, size in enumerate(shape) if keep or axis not in dropped
        ]
        if not dropped:  # to ONNX no axes are all
            return self.op("Identity", tensor, into=into)
        reduced_axes = self.const(tuple(sorted(dropped)), "int64")
        return self.op(f"Reduce{kind}", tensor, reduced_axes, shape=result_shape, into=into, keepdims=int(keep))


def required(node: Node, *positions: int) -> list[Tensor]:
    """Return the inputs at these positions, which every compact operator of the kind has."""
    inputs = [node.inputs[position] for position in positions]
    assert all(tensor is not None for tensor in inputs)
    return [tensor for tensor in inputs if tensor is not None]


def sizes(tensor: Tensor | None) -> tuple[int, ...]:
    """Return a shape without open sizes: a training step is traced at one batch."""
    assert tensor is not None
    assert tensor.shape is not None
    return tuple(size if size is not None else 1 for size in tensor.shape)
