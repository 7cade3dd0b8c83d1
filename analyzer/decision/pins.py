"""Pins: operators that the user binds to a device."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Set
from fnmatch import fnmatchcase

from analyzer.decision.decision_input import Pin
from analyzer.decision.placement_problem import HOST, PlacementProblem
from analyzer.errors import UsageError
from analyzer.graph import Graph, Node


def parse(text: str) -> Pin:
    """``PATTERN=cpu`` or ``PATTERN=gpu`` as on the command line.

    Raises:
        UsageError: It is anything else.
    """
    # From the right: a pattern may hold an equals sign, a device does not.
    pattern, _, device = text.rpartition("=")
    if pattern and device == "cpu":
        return Pin(pattern=pattern, device="cpu")
    if pattern and device == "gpu":
        return Pin(pattern=pattern, device="gpu")
    raise UsageError(
        f"{text!r} pins nothing.",
        hint="Write PATTERN=cpu or PATTERN=gpu: --pin 'Resize*=cpu', --pin layer4.*=gpu.",
    )


def pins_by_operator(graph: Graph, pins: Iterable[Pin]) -> dict[int, Pin]:
    """Return the pin of each pinned operator; the last one that fits wins.

    Raises:
        UsageError: A pin fits no operator.
    """
    # Later pins overwrite earlier ones, as options on a command line do.
    return {node.index: pin for pin in pins for node in _matching_operators(graph, pin)}


def bound_units(
    graph: Graph, pins: Iterable[Pin], problem: PlacementProblem, gpu_only: Set[int] = frozenset()
) -> list[bool | None]:
    """For each unit the side it is bound to: True is the GPU, None is free.

    ``gpu_only`` are operators that cannot be held on the CPU, where a GPU can run their unit.

    Raises:
        UsageError: A pin fits no operator, or asks for what cannot be.
    """
    # What has no CUDA kernel stays on the CPU as if it were pinned there.
    bound: list[bool | None] = [None if gpu_capable else False for gpu_capable in problem.gpu_capable_units]
    anchors = {problem.unit[index]: index for index in gpu_only if bound[problem.unit[index]] is None}
    anchors.pop(HOST, None)
    pinned: dict[int, tuple[Pin, Node]] = {}
    for index, pin in pins_by_operator(graph, pins).items():
        unit, node = problem.unit[index], graph.nodes[index]
        if unit == HOST:
            continue  # folded away: it runs nowhere, so that any wish is met
        if pin.device == "gpu" and not problem.gpu_capable[index]:
            raise UsageError(
                f"{node.name} ({node.op_type}) cannot be pinned to the GPU: ONNX Runtime runs it on the CPU.",
                hint=f"Drop the pin {pin.pattern}={pin.device}.",
            )
        if pin.device == "cpu" and unit in anchors:
            holder = graph.nodes[anchors[unit]]
            raise UsageError(
                f"{node.name} ({node.op_type}) cannot be pinned to the CPU: ONNX Runtime's CPU provider has no "
                f"kernel for {holder.op_type} in its types, and no session would keep it there.",
                hint=f"Drop the pin {pin.pattern}={pin.device}.",
            )
        other, first = pinned.setdefault(unit, (pin, node))
        if other.device != pin.device:
            raise UsageError(
                f"{first.name} is pinned to the {other.device.upper()} and {node.name} to the "
                f"{pin.device.upper()}, but both run as one fused operator.",
                hint="Pin both to the same device.",
            )
        bound[unit] = pin.device == "gpu"
    for unit in anchors:
        bound[unit] = True
    return bound


def _matching_operators(graph: Graph, pin: Pin) -> list[Node]:
    matches = [
        node
        for node in graph.nodes
        if any(fnmatchcase(text, pin.pattern) for text in (node.name, node.module, node.op_type) if text)
    ]
    if not matches:
        names = sorted(
            {text for node in graph.nodes for text in (node.name, node.module, node.op_type) if text}
        )
        near = difflib.get_close_matches(pin.pattern, names, n=3)
        hint = (
            f"Did you mean {', '.join(near)}?" if near else "A pattern is an operator's name, module or type."
        )
        raise UsageError(f"No operator fits the pin {pin.pattern}={pin.device}.", hint=hint)
    return matches
