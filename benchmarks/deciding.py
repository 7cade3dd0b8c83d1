"""How fast deciding is on large graphs, and how often it agrees with trying every placement.

    python benchmarks/deciding.py [--graphs 2000]

Graphs, times and sizes are drawn from a fixed seed; nothing is measured but the decision itself.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzer.costs.cost import Cost
from analyzer.decision import BATCHES, DecisionInput, decide, sweep
from analyzer.decision.plans import plan_all
from analyzer.devices.device import Device, Link
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.ort.execution import Copy, Direction, Group, NodePlacement, Placement, Session
from analyzer.prediction.estimate import Estimate

LINK = Link(name="PCIe 4.0 x16", bandwidth_bytes_per_s=26.1e9, pageable_bytes_per_s=26.1e9, latency_s=10e-6)
CPU = Device(slug="cpu", name="CPU", kind="cpu", bandwidth_bytes_per_s=100e9, threads=8, tdp_w=100.0)
GPU = Device(slug="gpu", name="GPU", kind="gpu", bandwidth_bytes_per_s=300e9, tdp_w=72.0, link=LINK)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Costs of the operators."""

    costs: tuple[Cost, ...]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a graph is drawn: how far back operators read, how many tensors each reads, and its share without a
    CUDA kernel; ``even`` draws both devices' times alike, so that no side is clearly better."""

    name: str
    span: int
    fan_in: tuple[int, ...]
    kept: float = 0.05
    even: bool = False


SHAPES = (
    Shape(name="chain", span=1, fan_in=(1,)),
    Shape(name="residual blocks", span=4, fan_in=(1, 1, 2)),
    Shape(name="dense connections", span=64, fan_in=(1, 2, 4)),
    Shape(name="chain, no side better", span=1, fan_in=(1,), even=True),
    Shape(name="blocks, no side better", span=4, fan_in=(1, 1, 2), even=True),
    Shape(name="blocks, half without a kernel", span=4, fan_in=(1, 1, 2), kept=0.5),
)


def exactly(seconds: float) -> Estimate:
    """A time without error."""
    return Estimate(value=seconds, low=seconds, high=seconds, origin="predicted")


def draw(shape: Shape, size: int, rng: random.Random) -> DecisionInput:
    """A question about a random graph."""
    source = Tensor(name="in", shape=(rng.randint(1, 10**6),), dtype=DTYPES["float32"])
    written = [
        Tensor(name=f"t{n}", shape=(rng.randint(1, 10**6),), dtype=DTYPES["float32"]) for n in range(size)
    ]
    reads = [_reads(shape, number, rng) for number in range(size)]
    nodes = tuple(
        Node(
            index=n,
            name=f"n{n}",
            op_type="Relu",
            inputs=tuple(written[r] for r in reads[n]) or (source,),
            outputs=(written[n],),
        )
        for n in range(size)
    )
    used = {r for read in reads for r in read}
    graph = Graph(
        name=shape.name,
        nodes=nodes,
        inputs=(source,),
        outputs=tuple(tensor for n, tensor in enumerate(written) if n not in used),
    )
    able = [rng.random() >= shape.kept for _ in range(size)]
    cpu = [rng.expovariate(1 / 50e-6) for _ in range(size)]
    gpu = [rng.expovariate(1 / (50e-6 if shape.even else 10e-6)) if able[n] else cpu[n] for n in range(size)]
    return DecisionInput(
        graph=graph,
        table=Table(costs=tuple(Cost(flops=1, bytes_read=4, bytes_written=4) for _ in nodes)),
        cpu=CPU,
        cpu_groups=_groups("cpu", able),
        cpu_times=tuple(map(exactly, cpu)),
        gpu=GPU,
        cuda_groups=_groups("cuda", able),
        cuda_times=tuple(map(exactly, gpu)),
        cpu_shares=tuple(map(exactly, cpu)),
        gpu_shares=tuple(map(exactly, gpu)),
        placement=_placement(graph, able),
        batch=1,
        peak_memory_bytes=0,
    )


def _reads(shape: Shape, number: int, rng: random.Random) -> tuple[int, ...]:
    count = min(number, rng.choice(shape.fan_in))
    if not count:
        return ()
    earliest = max(0, number - shape.span)
    return tuple({number - 1, *(rng.randint(earliest, number - 1) for _ in range(count - 1))})


def _groups(session: Session, able: Sequence[bool]) -> tuple[Group, ...]:
    return tuple(
        Group(
            session=session,
            name=f"{session}{n}",
            op_type="Relu",
            members=(n,),
            provider="cuda" if session == "cuda" and there else "cpu",
        )
        for n, there in enumerate(able)
    )


def _placement(graph: Graph, able: Sequence[bool]) -> Placement:
    copies = []
    for node, there in zip(graph.nodes, able, strict=True):
        name = node.outputs[0].name if node.outputs[0] is not None else ""
        others = tuple(reader for reader in graph.consumers.get(name, ()) if able[reader] != there)
        direction: Direction = "to_cpu" if there else "to_gpu"
        if others:
            copies.append(
                Copy(tensor=name, direction=direction, nbytes=None, producer=node.index, consumers=others)
            )
    return Placement(
        nodes=tuple(
            NodePlacement(
                provider="cuda" if there else "cpu",
                supported=there,
                why="cuda-kernel" if there else "no-cuda-kernel",
            )
            for there in able
        ),
        copies=tuple(copies),
    )


def least(question: DecisionInput) -> float:
    """The best of all placements, by trying each of them."""
    size = len(question.graph.nodes)
    able = [group.provider == "cuda" for group in question.cuda_groups]
    free = [number for number in range(size) if able[number]]
    best = float("inf")
    for choice in itertools.product((False, True), repeat=len(free)):
        side = [False] * size
        for number, there in zip(free, choice, strict=True):
            side[number] = there
        best = min(best, _cost(question, side))
    return best


def _cost(question: DecisionInput, side: Sequence[bool]) -> float:
    times = zip(side, question.cpu_times, question.cuda_times, strict=True)
    spent = sum((gpu if there else cpu).value for there, cpu, gpu in times if cpu and gpu)
    graph = question.graph
    outputs = {tensor.name for tensor in graph.outputs}
    tensors: list[tuple[Tensor, int | None]] = [(tensor, None) for tensor in graph.inputs]
    tensors += [(tensor, node.index) for node in graph.nodes for tensor in node.present_outputs]
    for tensor, producer in tensors:
        there = producer is not None and side[producer]
        readers = [side[reader] for reader in graph.consumers.get(tensor.name, ())]
        crossing = (not all(readers) or tensor.name in outputs) if there else any(readers)
        if crossing:
            spent += LINK.latency_s + (tensor.nbytes or 0) / LINK.bandwidth_bytes_per_s
    return spent


def seconds(run: Callable[[], object], repeats: int = 3) -> float:
    """The least of a few runs."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def agreement(graphs: int, rng: random.Random) -> tuple[int, float]:
    """How many small graphs get their least placement, and the worst excess over it."""
    agreed, worst = 0, 0.0
    for _ in range(graphs):
        shape = rng.choice(SHAPES)
        question = draw(shape, rng.randint(1, 10), rng)
        plan = plan_all(question).hybrid
        excess = plan.latency.value / least(question) - 1 if plan is not None else float("inf")
        agreed += excess < 1e-6
        worst = max(worst, excess)
    return agreed, worst


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000, help="small graphs to try every placement of")
    graphs = parser.parse_args().graphs
    rng = random.Random(2026)
    print(f"Python {platform.python_version()}, {platform.machine()}, best of 3 runs")
    print(f"{'graph':32}{'operators':>10}{'plans (s)':>12}{'decide (s)':>12}{'on GPU':>9}")
    for shape in SHAPES:
        for size in (1000, 10_000):
            question = draw(shape, size, rng)
            planned, decided = seconds(lambda: plan_all(question)), seconds(lambda: decide(question))  # noqa: B023
            there = decide(question).placement.count("gpu")
            print(f"{shape.name:32}{size:>10,}{planned:>12.2f}{decided:>12.2f}{there:>9,}")
    question = draw(SHAPES[1], 500, rng)
    swept = seconds(lambda: sweep(dict.fromkeys(BATCHES, question)))
    print(f"sweep of {len(BATCHES)} batches, 500 operators: {swept:.2f} s")
    agreed, worst = agreement(graphs, rng)
    print(
        f"least of all placements, graphs of 1 to 10 operators: {agreed:,} of {graphs:,} "
        f"(worst excess {worst:.1e})"
    )


if __name__ == "__main__":
    main()
