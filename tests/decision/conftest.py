"""Questions built by hand: every time, size and copy is the test's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from analyzer.costs.cost import Cost
from analyzer.decision import DecisionInput
from analyzer.devices.device import Device, Link
from analyzer.figures import Figure
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.ort.execution import Copy, Group, NodePlacement, Placement
from analyzer.prediction.estimate import Estimate

LINK = Link(
    name="PCIe", bandwidth_bytes_per_s=10e9, pageable_bytes_per_s=10e9, latency_s=10e-6, source="made up"
)
CPU = Device(
    slug="here",
    name="Here",
    kind="cpu",
    bandwidth_bytes_per_s=20e9,
    memory_bytes=64 * 10**9,
    units=4,
    threads=8,
    tdp_w=100.0,
    origin="calibrated",
)
GPU = Device(
    slug="l4",
    name="NVIDIA L4",
    kind="gpu",
    bandwidth_bytes_per_s=300e9,
    memory_bytes=24 * 10**9,
    tdp_w=72.0,
    link=LINK,
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Stands for a CostTable: the decision reads its costs alone."""

    costs: tuple[Cost, ...]


def tensor(name: str, elements: int = 250_000, **given: Any) -> Tensor:
    """A megabyte of 32-bit floats unless told otherwise."""
    return Tensor(name=name, shape=(elements,), dtype=DTYPES["float32"], **given)


@dataclass(frozen=True, kw_only=True)
class Op:
    """An operator of a test: what it reads (by operator number, or ``in``), and how long it takes."""

    reads: tuple[int | str, ...] = ()
    cpu: float | None = 1e-3
    gpu: float | None = 1e-4
    able: bool = True
    elements: int = 250_000
    weight: int = 0
    op_type: str = "Relu"
    gpu_bound: str | None = None
    cpu_bound: str | None = None
    why: str = "no-cuda-kernel"
    detail: str = ""
    result: bool = False


def estimate(
    seconds: float, *, spread: float = 1.0, origin: str = "predicted", bound: str | None = None
) -> Estimate:
    return Estimate(
        value=seconds,
        low=seconds / spread,
        high=seconds * spread,
        origin=origin,  # type: ignore[arg-type]
        bound=bound,  # type: ignore[arg-type]
    )


def graph_of(ops: Sequence[Op], input_elements: int = 250_000) -> Graph:
    """The operators in order; what nobody reads, and every ``result``, is an output."""
    source = tensor("in", input_elements)
    outputs = [tensor(f"t{number}", op.elements) for number, op in enumerate(ops)]
    weights = {
        n: tensor(f"w{n}", op.weight, constant=True, initializer=True) for n, op in enumerate(ops) if op.weight
    }
    nodes = tuple(
        Node(
            index=number,
            name=f"node{number}",
            op_type=op.op_type,
            inputs=(
                *(source if read == "in" else outputs[int(read)] for read in op.reads),
                *((weights[number],) if number in weights else ()),
            ),
            outputs=(outputs[number],),
            module=f"layer{number}",
        )
        for number, op in enumerate(ops)
    )
    read = {int(r) for op in ops for r in op.reads if r != "in"}
    results = tuple(outputs[n] for n, op in enumerate(ops) if op.result or n not in read)
    return Graph(
        name="test", nodes=nodes, inputs=(source,), outputs=results, initializers=tuple(weights.values())
    )


def placement_of(graph: Graph, ops: Sequence[Op]) -> Placement:
    """As a CUDA session: every tensor between an operator on the CPU and one on the GPU is copied once."""
    nodes = tuple(
        NodePlacement(
            provider="cuda" if op.able else "cpu",
            supported=op.able,
            why="cuda-kernel" if op.able else op.why,
            detail=op.detail,
        )
        for op in ops
    )
    copies = []
    for number, op in enumerate(ops):
        name = f"t{number}"
        other = tuple(c for c in graph.consumers.get(name, ()) if ops[c].able != op.able)
        if other:
            direction = "to_cpu" if op.able else "to_gpu"
            copies.append(
                Copy(
                    tensor=name,
                    direction=direction,  # type: ignore[arg-type]
                    nbytes=graph.nodes[number].outputs[0].nbytes,
                    producer=number,
                    consumers=other,
                )
            )
    return Placement(nodes=nodes, copies=tuple(copies))


def groups_of(session: str, members: Sequence[tuple[int, ...]], ops: Sequence[Op]) -> tuple[Group, ...]:
    return tuple(
        Group(
            session=session,  # type: ignore[arg-type]
            name=f"{session}{group}",
            op_type=ops[group[0]].op_type,
            members=group,
            provider="cuda" if session == "cuda" and ops[group[0]].able else "cpu",
        )
        for group in members
    )


Build = Callable[..., DecisionInput]


def _make(
    *ops: Op,
    cpu_groups: Sequence[tuple[int, ...]] | None = None,
    cuda_groups: Sequence[tuple[int, ...]] | None = None,
    spread: float = 1.0,
    origins: Mapping[str, str] | None = None,
    input_elements: int = 250_000,
    **given: Any,
) -> DecisionInput:
    """A question about some operators, one group each unless told otherwise."""
    graph = graph_of(ops, input_elements)
    kinds = {"cpu": "predicted", "gpu": "predicted"} | dict(origins or {})
    single = [(number,) for number in range(len(ops))]
    on_cpu, on_cuda = cpu_groups or single, cuda_groups or single

    def of(value: float | None, side: str, bound: str | None) -> Figure | None:
        return None if value is None else estimate(value, spread=spread, origin=kinds[side], bound=bound)

    question: dict[str, Any] = {
        "graph": graph,
        "table": Table(costs=tuple(Cost(flops=op.elements, bytes_read=op.elements * 4) for op in ops)),
        "cpu": CPU,
        "cpu_groups": groups_of("cpu", on_cpu, ops),
        "cpu_times": tuple(of(ops[group[0]].cpu, "cpu", ops[group[0]].cpu_bound) for group in on_cpu),
        "gpu": GPU,
        "cuda_groups": groups_of("cuda", on_cuda, ops),
        "cuda_times": tuple(of(ops[group[0]].gpu, "gpu", ops[group[0]].gpu_bound) for group in on_cuda),
        "placement": placement_of(graph, ops),
        "batch": 1,
        "cpu_shares": tuple(of(one.cpu, "cpu", one.cpu_bound) for one in ops),
        "gpu_shares": tuple(of(one.gpu, "gpu", one.gpu_bound) for one in ops),
    }
    return DecisionInput(**(question | given))


@pytest.fixture
def build() -> Build:
    return _make


@pytest.fixture
def op() -> type[Op]:
    return Op


@pytest.fixture
def devices() -> Mapping[str, Device]:
    return {"cpu": CPU, "gpu": GPU}


# Hypothesis runs many examples in one call of a test: what it uses must not be made per test.
@pytest.fixture(scope="session")
def build_shared() -> Build:
    return _make


@pytest.fixture(scope="session")
def op_shared() -> type[Op]:
    return Op
