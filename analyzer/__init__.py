"""Profiler and hardware adviser for PyTorch models: CPU or GPU, for which operators, and why.

    from analyzer import analyze, load_report

    analysis = analyze("model.py", batch=64)
    analysis.verdict.device

Imports nothing heavy until something is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# For type checkers and editors, which do not follow the function below.
if TYPE_CHECKING:
    from analyzer.api import analyze, analyze_generation, apply_plan, plan_capacity
    from analyzer.costs.registry import rule
    from analyzer.errors import AnalyzerError
    from analyzer.fleet.fleet import analyze_fleet
    from analyzer.record import load_report
    from analyzer.record.analysis import Analysis

__all__ = [
    "Analysis",
    "AnalyzerError",
    "__version__",
    "analyze",
    "analyze_fleet",
    "analyze_generation",
    "apply_plan",
    "load_report",
    "plan_capacity",
    "rule",
]

# Imported when asked for (PEP 562): the command line imports this package first, and `--help` shall not wait.
_HOMES = {
    "Analysis": "analyzer.record.analysis",
    "AnalyzerError": "analyzer.errors",
    "analyze": "analyzer.api",
    "analyze_fleet": "analyzer.fleet.fleet",
    "analyze_generation": "analyzer.api",
    "load_report": "analyzer.record",
    "apply_plan": "analyzer.api",
    "plan_capacity": "analyzer.api",
    "rule": "analyzer.costs.registry",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, imported or not, for a notebook's completion."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
