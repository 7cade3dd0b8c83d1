"""``--fix fusions``: known patterns as the one operator that ONNX Runtime has for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.graph import DEFAULT_DOMAIN
from analyzer.pipeline.apply.fixes.bench import Bench, NotApplied, Stage
from analyzer.pipeline.apply.fixes.fixed import FixedStage
from analyzer.text import listed, plural

# By whose rules, in words. Sessions fuse by rules of their own; these find what those do not.
_TOOLS = {"rules": "onnxscript's rules", "transformers": "ONNX Runtime's transformers optimizer"}


# How often a tool holds the weights at its peak: 4.0 GB of 0.8 GB. onnxscript's rules map them.
_COPIES = {"transformers": 5.5}
# What a pattern becomes, where ONNX's own domain has an operator for it.
_FUSED = frozenset(
    {"Attention", "Gelu", "GroupNormalization", "LayerNormalization", "RMSNormalization"}
    | {"RotaryEmbedding", "SimplifiedLayerNormalization"}
)


def restore_fusions(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """Each rewriting that is predicted to take less time than what was there before it, the best one first."""
    tools = {tool: words for tool, words in _TOOLS.items() if _has_room(tool, stage)}
    used: list[str] = []
    last: _Rewritten | None = None
    disagreed = ""
    while tools:
        tried = {tool: _attempt(tool, stage if last is None else last.stage, bench) for tool in tools}
        found = {tool: made for tool, made in tried.items() if isinstance(made, _Rewritten)}
        wrong = (
            f"{_TOOLS[tool]} change what it computes ({why})"
            for tool, why in tried.items()
            if isinstance(why, str)
        )
        disagreed = next(wrong, disagreed)
        if not found:
            break
        best = min(found, key=lambda tool: found[tool].stage.latency.value)
        last = found[best]
        used.append(tools.pop(best))
    if last is not None:
        what = (
            f"{_restored(stage, last.stage)} restored by {listed(used)}: "
            f"{plural(last.stage.groups, 'kernel group')} where there were {stage.groups:,}."
        )
        return FixedStage(stage=last.stage, what=what, numbers=last.numbers)
    if disagreed:
        return NotApplied(why=disagreed, disagrees=True)
    return NotApplied(why="no rewriting that is known makes a session of this model faster")


def _has_room(tool: str, stage: Stage) -> bool:
    import psutil

    held = _COPIES.get(tool, 0) * stage.prepared.graph.parameter_bytes
    return bool(held < psutil.virtual_memory().available)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rewritten:
    """A faster model with the same numbers."""

    stage: Stage
    numbers: Mapping[str, Any]


def _attempt(tool: str, stage: Stage, bench: Bench) -> _Rewritten | str | None:
    """What a tool makes of a model; a text where its numbers are others, None where it is of no use."""
    try:
        path, told = bench.made(tool, stage)
        fixed = bench.stage(path, stage.terms) if told["applied"] else stage
        if not _is_better(fixed, stage):
            return None
        # Where no session on the CPU can show that it is right, it is not taken.
        numbers = bench.numbers(path, stage.terms)
    except AnalyzerError:
        return None  # the tool, or a session, makes nothing of this graph: the other one may
    return _Rewritten(stage=fixed, numbers=numbers) if numbers["agrees"] else str(numbers["why"])


def _is_better(after: Stage, before: Stage) -> bool:
    return (after.latency.value, after.groups) < (before.latency.value, before.groups)


def _restored(before: Stage, after: Stage) -> str:
    """The fused operators that are there now, with how many there are more."""
    counts = Counter(_fused(after))
    counts.subtract(_fused(before))
    return listed(f"{count} {name}" for name, count in sorted(counts.items()) if count > 0) or "Operators"


def _fused(stage: Stage) -> Iterator[str]:
    for node in stage.prepared.graph.nodes:
        if node.domain != DEFAULT_DOMAIN or node.op_type in _FUSED:
            yield node.op_type
