"""``--fix fusions``: known patterns as the one operator that ONNX Runtime has for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.pipeline.apply.fixes.bench import Bench, NotApplied, Stage
from analyzer.pipeline.apply.fixes.fixed import FixedStage
from analyzer.text import listed, plural

# By whose rules, in words. Sessions fuse by rules of their own; these find what those do not.
_TOOLS = {"rules": "onnxscript's rules", "transformers": "ONNX Runtime's transformers optimizer"}


def restore_fusions(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """The rewriting that is predicted to take the least time, where that is less than before."""
    found: list[FixedStage] = []
    disagreed = ""
    for tool, words in _TOOLS.items():
        try:
            path, told = bench.made(tool, stage)
            if not told["applied"]:
                continue
            fixed = bench.stage(path, stage.terms)
        except AnalyzerError:
            continue  # the tool, or a session, makes nothing of this graph: the other one may
        if not _is_better(fixed, stage):
            continue
        try:
            numbers = bench.numbers(path, stage.terms)
        except AnalyzerError:
            continue  # no session on the CPU can show that it is right
        if not numbers["agrees"]:
            disagreed = f"{words} change what it computes ({numbers['why']})"
            continue
        found.append(
            FixedStage(
                stage=fixed,
                what=f"{_counts(told['applied'])} restored by {words}: "
                f"{plural(fixed.groups, 'kernel group')} where there were {stage.groups:,}.",
                numbers=numbers,
            )
        )
    if found:
        return min(found, key=lambda each: each.stage.latency.time_s)
    if disagreed:
        return NotApplied(why=disagreed, disagrees=True)
    return NotApplied(why="no rewriting that is known makes a session of this model faster")


def _is_better(after: Stage, before: Stage) -> bool:
    return (after.latency.time_s, after.groups) < (before.latency.time_s, before.groups)


def _counts(applied: Mapping[str, Any]) -> str:
    return listed(f"{count} {name}" for name, count in applied.items())
