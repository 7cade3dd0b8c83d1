"""ONNX Runtime's execution: groups of operators, the provider of each, and the copies between.

Annotations tell a session where nodes go: in the model a word on each, in the session its meaning. By ONNX
Runtime's ``layering_annotations.cc`` the metadata property ``layer_ann`` of a node is looked up in the entry
``session.layer_assignment_settings``; a node whose word belongs to one provider is hidden from the others. An
equals sign asks for the whole word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from analyzer.operators import SHAPE_READERS, VIEWS

if TYPE_CHECKING:
    import onnx

    from analyzer.graph import Graph

# Of a node: one word each for CPUExecutionProvider and CUDAExecutionProvider.
Provider = Literal["cpu", "cuda"]
# Of a session: "cuda" means providers [CUDA, CPU], so that nodes of both kinds are in it.
Session = Literal["cpu", "cuda"]
Direction = Literal["to_gpu", "to_cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlacement:
    """The place of one operator in ONNX Runtime's CUDA session.

    Attributes:
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


KEY = "layer_ann"
ON_CPU = "to_cpu"
ENTRY = "session.layer_assignment_settings"
SETTINGS = {ENTRY: f"cpu(={ON_CPU})"}


# Before the names of the properties that tell a reader the plan: Netron shows them with the node.
PLAN_PREFIX = "analyzer.plan."


def annotate(
    proto: onnx.ModelProto,
    names: Collection[str],
    shown: Mapping[str, Mapping[str, str]] | None = None,
) -> int:
    """Mark nodes of a model for the CPU, in place; returns how many it found.

    ``shown`` are properties by the node's name, for people. What a node has already is replaced: the model may
    come from an earlier plan.
    """
    count = 0
    for node in proto.graph.node:
        entries = [(entry.key, entry.value) for entry in node.metadata_props]
        kept = {key: value for key, value in entries if key != KEY and not key.startswith(PLAN_PREFIX)}
        kept |= {f"{PLAN_PREFIX}{key}": value for key, value in (shown or {}).get(node.name, {}).items()}
        if node.name in names:
            kept[KEY] = ON_CPU
            count += 1
        del node.metadata_props[:]
        for key, value in kept.items():
            node.metadata_props.add(key=key, value=value)
    return count


# Counted on the CUDA provider of ONNX Runtime 1.31 with stand-ins for the CUDA libraries, which count what is
# handed to the device (`tests/judge`): what is not named launches one. Copies on the device are not counted.
_LAUNCHES = {
    **dict.fromkeys(VIEWS | SHAPE_READERS, 0),
    "Dropout": 0,  # a copy
    "Loop": 0,
    "If": 0,
    "Scan": 0,
    "ReduceMean": 2,
    "ReduceSumSquare": 2,
    "Resize": 2,
    "GatherND": 2,
    "Attention": 3,
}
# With a third input, a bias, one kernel more.
BIASED = frozenset({"Gemm", "Conv", "ConvTranspose"})


def launches(op_type: str, *, inputs: int = 0) -> int:
    """Return kernels that one execution launches; ``inputs`` counts the present ones.

    A ``Gemm`` with a bias first writes the bias into its result; a ``Conv`` with a bias adds it afterwards. A
    ``Dropout`` that is told whether it trains is taken for one that does.
    """
    if op_type == "Dropout" and inputs >= 3:
        return 1
    if op_type in BIASED and inputs >= 3:
        return 2
    return _LAUNCHES.get(op_type, 1)
