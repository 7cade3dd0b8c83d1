"""What ONNX Runtime executes: groups of operators, where each is placed, and the copies between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from analyzer.graph import Graph

# Of a node: one word each for CPUExecutionProvider and CUDAExecutionProvider.
Provider = Literal["cpu", "cuda"]
# Of a session: "cuda" means providers [CUDA, CPU], so that nodes of both kinds are in it.
Session = Literal["cpu", "cuda"]
Direction = Literal["to_gpu", "to_cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlacement:
    """Where ONNX Runtime's CUDA session puts one operator.

    Attributes:
        provider: ``cuda`` or ``cpu``.
        supported: Whether a CUDA kernel exists for its opset and types.
        why: A slug: ``cuda-kernel``, ``no-cuda-kernel``, ``no-kernel-for-opset``, ``no-kernel-for-type``,
            ``capability`` (the kernel refuses these attributes), ``shape-arithmetic`` (kept on the CPU on
            purpose), ``folded`` (a constant subgraph, does not run), ``no-kernel`` (no provider has one at all:
            there is no session, and it is taken to run where what is around it does).
        detail: A sentence with the particulars: the opset or type at which a kernel exists.
    """

    provider: Provider
    supported: bool
    why: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy that ONNX Runtime inserts between the devices inside the graph.

    Attributes:
        tensor: Name of the tensor.
        direction: ``to_gpu`` (MemcpyFromHost) or ``to_cpu`` (MemcpyToHost).
        nbytes: Its size; None where its shape is open.
        producer: Index of the operator that writes it, None for a graph input.
        consumers: Indices of the operators that read the copy; empty for a graph output.
    """

    tensor: str
    direction: Direction
    nbytes: int | None
    producer: int | None
    consumers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBody:
    """The placement inside of a control-flow operator: ONNX Runtime places each subgraph by itself.

    Attributes:
        operator: Index of the operator that runs it, in the graph around it.
        name: The attribute that holds it (``body``, ``then_branch``, ``else_branch``).
        graph: What it holds.
        placement: Of its operators, with the copies of one pass through it.
    """

    operator: int
    name: str
    graph: Graph
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The placement of a whole graph in a session with [CUDA, CPU].

    Attributes:
        nodes: One entry per operator, in the graph's order.
        copies: Inside the graph, in execution order; transfers of graph inputs and outputs that every
            CUDA session makes are not among them.
        fails: Why the session cannot be created at all (bf16 on an operator without a kernel), else empty.
        bodies: Of the operators that hold subgraphs, in execution order; what those hold is in their own.
        lacks: Types of operators without a kernel in any provider, where they alone are why it fails: something
            else that runs them would run the whole graph on either device.
        cpu_fails: Why a session with the CPU provider alone cannot be created, else empty.
        gpu_only: Indices of the operators that are why, or whose bodies hold them.
        release: Of ONNX Runtime, by whose kernels it is; empty for the newest that is known.
    """

    nodes: tuple[NodePlacement, ...]
    copies: tuple[Copy, ...] = ()
    fails: str = ""
    lacks: tuple[str, ...] = ()
    cpu_fails: str = ""
    gpu_only: frozenset[int] = frozenset()
    bodies: tuple[PlacedBody, ...] = ()
    release: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One node that a session executes, and the operators of the exported graph that it stands for.

    Attributes:
        session: ``cpu`` (a session with the CPU provider alone) or ``cuda`` (with [CUDA, CPU]).
        name: The executed node's name.
        op_type: The executed node's type (``FusedConv``, ``SkipLayerNormalization``).
        members: Indices of operators, ascending. Operators that ONNX Runtime folds away are in no group.
        provider: Where it runs.
        kernels: How many kernels it launches on a GPU; 0 for views.
        parts: Names of further executed nodes that do the same operators' work (the reshapes around a Gemm, a
            change of layout): their measured time belongs to this group.
    """

    session: Session
    name: str
    op_type: str
    members: tuple[int, ...]
    provider: Provider
    kernels: int = 1
    parts: tuple[str, ...] = ()
