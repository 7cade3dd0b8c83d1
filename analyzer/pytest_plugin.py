"""The plugin of pytest: the fixture ``analyze_model``, which analyses models and asserts what a gate does.

pytest imports this module at every start; all else is imported when a test uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from analyzer.api import Model
    from analyzer.record.analysis import Analysis


class ModelAnalyzer:
    """Analyse models in a test."""

    def __call__(self, model: Model, **options: Any) -> Analysis:
        """Return the analysis of a model as ``analyze check`` makes it; keywords are those of ``analyze()``.

        Nothing is executed, and the result is the same on every machine, unless ``run=True``.
        """
        from analyzer import analyze

        run = options.pop("run", False)
        return analyze(model, **{"run": run, "check": not run, **options})

    def assert_passes(self, analysis: Analysis, **limits: Any) -> None:
        """Fail the test where ``analyze check`` would fail.

        Args:
            analysis: Of a model, or a record that ``load_report()`` read.
            limits: Options of the gate as keywords: ``max_latency="20ms"``, ``max_copies=0``, ``baseline=...``.

        Raises:
            UsageError: A limit that cannot be right.
        """
        __tracebackhide__ = True
        from dataclasses import replace
        from pathlib import Path

        from analyzer.checks import fails, judge
        from analyzer.checks.baseline import read_baseline
        from analyzer.checks.settings import GATE_OPTIONS, CheckSettings, gate_fields
        from analyzer.options import require_keywords
        from analyzer.report.findings_text import render_text

        known = {option.keyword: option for option in GATE_OPTIONS.values()}
        require_keywords("assert_passes", limits, known)
        given = {
            known[name].name: (value,) if known[name].kind.repeats and isinstance(value, str) else value
            for name, value in limits.items()
        }
        settings = CheckSettings(**gate_fields(given, ""))
        baseline = read_baseline(Path(settings.baseline)) if settings.baseline else None
        judgement = judge(analysis, settings, baseline=baseline)
        if fails(judgement.findings, settings):
            judged = replace(analysis, findings=judgement.findings, ignored=judgement.ignored)
            pytest.fail(render_text(judged, fail_on=settings.fail_on), pytrace=False)


@pytest.fixture(scope="session")
def analyze_model() -> ModelAnalyzer:
    """``analyze_model(MODEL)`` analyses a model, ``analyze_model.assert_passes(analysis)`` is the gate."""
    return ModelAnalyzer()
