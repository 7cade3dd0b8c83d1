"""``--precision fp16`` and ``--precision int8``: the model in a narrower type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from analyzer.conversion import NoForm, convert, integer_form, without_half_kernel
from analyzer.graph import Graph
from analyzer.ort.execution import Placement
from analyzer.ort.kernels import registry
from analyzer.ort.simplify import simplify
from analyzer.pipeline.apply.fixes.bench import LARGEST_FLOAT16, Bench, NotApplied, Stage
from analyzer.pipeline.apply.fixes.fixed import FixedStage
from analyzer.pipeline.target_devices import model_precision
from analyzer.text import plural

_NO_KERNEL = "CUDA's provider has no float16 kernel for it"
_ON_CPU = "it runs on the CPU, which computes float16 in float32 between casts"
_CALIBRATION_SETS = 8


def in_half(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """Weights and arithmetic in float16 where there are kernels; inputs and outputs keep their types."""
    graph = stage.prepared.graph
    integers = integer_form(graph)
    if integers is not None:
        return NotApplied(why=f"the model is quantised already, to {integers}")
    own = model_precision(graph)
    if own != "fp32":
        return NotApplied(why=f"its weights are {own}, and only those of fp32 are converted")
    blocked = tuple(_left_wide(graph, stage.prepared.placement))
    # What a session computes once stays as it is, too: to fold it takes a kernel of the CPU.
    folded = (
        graph.nodes[index].name
        for index in sorted(simplify(graph, registry(stage.prepared.placement.release)).folded)
    )
    path, _ = bench.made("float16", stage, blocked=[*(each["name"] for each in blocked), *folded])
    terms = replace(stage.terms, precision="float16")
    fixed = bench.stage(path, terms)
    numbers = bench.numbers(path, terms)
    if not numbers["agrees"]:
        return NotApplied(why=f"float16 changes what it computes ({numbers['why']})", disagrees=True)
    # The CPU rounds to float16 at few places, and would not show what is infinite on a GPU.
    reached = bench.overflow(path, fixed.prepared.graph)
    if reached:
        tensor = max(reached, key=reached.__getitem__)
        name = fixed.prepared.graph.nodes[fixed.prepared.graph.producer[tensor]].name
        why = f"{name} gives {reached[tensor]:.3g}, where float16 ends at {LARGEST_FLOAT16:,.0f}"
        return NotApplied(why=why, disagrees=True)
    kept = f" but {plural(len(blocked), 'operator')} in float32" if blocked else ""
    what = f"Weights and arithmetic in float16{kept}; inputs and outputs keep their types."
    return FixedStage(stage=fixed, what=what, numbers=numbers, blocked=blocked)


def _left_wide(graph: Graph, placement: Placement) -> Iterator[Mapping[str, str]]:
    """Operators that would only be cast back: without a kernel in float16 on the GPU, or on the CPU."""
    wide = frozenset(without_half_kernel(graph, "float16"))
    for node, placed in zip(graph.nodes, placement.nodes, strict=True):
        floats = any(tensor.dtype.name == "float32" for tensor in (*node.present_inputs, *node.present_outputs))
        if placed.why == "folded" or not floats:
            continue
        if node.index in wide:
            yield {"name": node.name, "op_type": node.op_type, "why": _NO_KERNEL}
        elif placed.provider == "cpu":
            yield {"name": node.name, "op_type": node.op_type, "why": _ON_CPU}


def in_integers(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """Activations and weights of products in int8, ranges from the model's own inputs and varied ones."""
    graph = stage.prepared.graph
    form, own = convert(graph, "int8"), model_precision(graph)
    if own != "fp32" and integer_form(graph) is None:
        return NotApplied(why=f"its weights are {own}, and only those of fp32 are quantised")
    if isinstance(form, NoForm):
        return NotApplied(why=form.why)
    path, told = bench.made("int8", stage, feeds=str(bench.feeds), sets=_CALIBRATION_SETS)
    terms = replace(stage.terms, precision="int8")
    fixed = bench.stage(path, terms)
    numbers = bench.numbers(path, terms)
    if not numbers["agrees"]:
        return NotApplied(why=f"8 bits change too much of what it computes ({numbers['why']})", disagrees=True)
    what = (
        f"Activations and weights in int8 (QDQ, one scale a tensor), ranges from {told['sets']} sets of "
        "inputs: the model's own and varied ones. Real data give better ranges."
    )
    return FixedStage(stage=fixed, what=what, numbers=numbers)
