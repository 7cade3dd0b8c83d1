"""Options of the CUDA provider that change a session's time: what they gain, and where they cannot be set."""

from __future__ import annotations

import math
from collections.abc import Iterable

from analyzer.decision.choice import Ratio
from analyzer.decision.error_components import ErrorComponent, ErrorComponents, over, ratio
from analyzer.figures import Figure, Origin
from analyzer.operators import RECURRENT
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.prediction.gpu.launch import HOST_WIDTH, REPLAY_S
from analyzer.record.analysis import Analysis
from analyzer.text import plural

# Ends of what is saved over what is predicted where images are turned no more: five networks on an H100 saved
# 0.96 to 1.52 times as much (`benchmarks/prediction.md`), and five are few.
_TURNED = (0.5, 2.0)
CHANNELS_LAST = frozenset(
    {"AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"}
    | {"GlobalMaxPool", "GridSample", "LRN", "MaxPool", "SpaceToDepth"}
)
"""Operators in whose place ONNX Runtime puts ones with names of its own under ``prefer_nhwc``
(``CUDAExecutionProvider::ShouldConvertDataLayoutForOp``, ``ApiGraph::CopyNode``)."""


def not_captured(prepared: PreparedGraph) -> str:
    """Return why a CUDA graph cannot hold the session; empty where it can: fixed sizes, nothing on the CPU."""
    graph, copies = prepared.graph, prepared.placement.copies
    if any(node.graphs or node.op_type in RECURRENT for node in graph.nodes):
        return "nothing shows that loops, branches and recurrences are captured"
    if any(tensor.elements is None for node in graph.nodes for tensor in node.present_outputs):
        return "what it computes has sizes that data decide"
    if on_cpu := sum(group.provider != "cuda" for group in prepared.cuda_groups):
        return f"the session runs {plural(on_cpu, 'operator')} on the CPU"
    if copies:
        return f"the session makes {plural(len(copies), 'copy', 'copies')} between the devices"
    return "its state lies elsewhere in every run" if graph.shared_outputs else ""


def replay_gain(before: ErrorComponents | None, after: ErrorComponents | None) -> Ratio | None:
    """Return how many times as long a session takes as one replay; ``after`` is without the replay itself."""
    once = Figure(value=REPLAY_S, low=REPLAY_S / HOST_WIDTH, high=REPLAY_S * HOST_WIDTH)
    replay = ErrorComponent(resource="launch", source="replay", time=once)
    return None if before is None or after is None else ratio(before, (*after, replay))


def layout_gain(analysis: Analysis, before: ErrorComponents | None) -> tuple[Ratio | None, tuple[int, ...]]:
    """Return how many times as long a session takes channels first, and which operators turn their images."""
    known = [(op.index, op.gpu.overhead) for op in analysis.operators if op.gpu and op.gpu.overhead]
    # Where the host is the slower, fewer kernels end no sooner.
    saved = math.fsum(one.layout_s for _, one in known) - math.fsum(one.surplus_s for _, one in known)
    turned = tuple(index for index, overhead in known if overhead.layout_s > 0)
    if before is None or not turned or saved <= 0:
        return None, ()
    whole = sum(part.time.value for part in before)
    gain, low, high = (whole / max(whole - saved * part, whole / 100) for part in (1.0, *_TURNED))
    return (gain, low, high), turned


def faster(latency: Figure, gains: Iterable[Ratio]) -> Figure:
    """Return a latency without the shares that options save of it; their errors are apart from its own."""
    shares = [[1 - 1 / end for end in gain] for gain in gains]
    factors = [1 / max(1 - sum(ends), 0.01) for ends in zip(*shares, strict=True)]
    after = over(latency, Figure(value=factors[0], low=factors[1], high=factors[2])) if factors else None
    if after is None:
        return latency
    origin: Origin = "predicted" if latency.origin == "predicted" else "mixed"
    return Figure(value=after[0], low=after[1], high=after[2], origin=origin)
