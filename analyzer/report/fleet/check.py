"""The check of a fleet: the findings of all its models in the formats that a single check has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree as ET

from analyzer.checks import Judgement, fails
from analyzer.checks.settings import CheckSettings
from analyzer.record.analysis import Analysis, Finding, Tool
from analyzer.record.fleet import FleetModel
from analyzer.report.ci import github, junit, sarif
from analyzer.report.document import Document, Headline, Section, Table, Text
from analyzer.report.escaping import printable
from analyzer.report.findings_text import (
    FindingPlace,
    file_of,
    place_of,
    render_markdown,
    render_text,
    rule_label,
    tally,
)
from analyzer.report.markdown import markdown
from analyzer.text import loggable, plural

FORMATS = ("text", "markdown", "sarif", "junit", "github")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedModel:
    """A model of a fleet as it was judged; its analysis is not kept, of which there may be thousands.

    Attributes:
        name: Of the model in the fleet.
        findings: Its findings.
        fails: Whether the check fails by them.
        text, markdown: Its part of these formats.
        results: Of SARIF.
        suite: Of JUnit.
        placed: Findings with their places, for GitHub.
    """

    name: str
    findings: tuple[Finding, ...]
    fails: bool
    text: str
    markdown: str
    results: list[dict[str, Any]]
    suite: ET.Element
    placed: list[tuple[Finding, FindingPlace]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFleet:
    """All models of a fleet.

    Attributes:
        name: What was checked: the fleet's file.
        tool: That judged.
        models: In the fleet's order.
        left: Models that are not done yet.
    """

    name: str
    tool: Tool
    models: Sequence[CheckedModel] = field(default_factory=tuple)
    left: int = 0

    @property
    def failing(self) -> tuple[CheckedModel, ...]:
        """Those by which the check fails."""
        return tuple(model for model in self.models if model.fails)


def checked(name: str, analysis: Analysis, *, fail_on: str) -> CheckedModel:
    """A model with its findings in its analysis."""
    named = replace(analysis, findings=_named(analysis.findings, name))
    results = sarif.results_of(named)
    for result in results:
        _tell(result, name)
    return CheckedModel(
        name=name,
        findings=analysis.findings,
        fails=bool(fails(analysis.findings, CheckSettings(fail_on=fail_on))),
        text=render_text(analysis, fail_on=fail_on),
        markdown=render_markdown(analysis, fail_on=fail_on),
        results=results,
        suite=junit.suite_of(analysis, name, fail_on=fail_on),
        placed=[(finding, place_of(finding, analysis)) for finding in named.findings],
    )


def checked_failure(model: FleetModel, judgement: Judgement, *, fail_on: str, tool: Tool) -> CheckedModel:
    """A model that has no record, with the finding that says so."""
    place = FindingPlace(file=file_of(model.reference), line=None)
    failing = bool(fails(judgement.findings, CheckSettings(fail_on=fail_on)))
    every = (*judgement.findings, *judgement.ignored)
    results = [
        sarif.result_of(
            finding,
            sarif.location_of(place.file, {"startLine": 1}),
            sarif.fingerprint_of([finding.code, model.name]),
        )
        for finding in _named(every, model.name)
    ]
    for result, entry in zip(results[len(judgement.findings) :], judgement.ignored, strict=True):
        result |= sarif.suppressed(entry.reason)
    for result in results:
        _tell(result, model.name)
    outcome = "failed" if failing else "passed"
    told = f"{tally(judgement.findings)} ({model.name}, which could not be analysed)"
    lines = [
        f"{place}: {one.severity} {one.code} {one.message}\n    fix: {one.fix}\n" for one in judgement.findings
    ]
    lines += [f"ignored: {one.code}{': ' + one.reason if one.reason else ''}" for one in judgement.ignored]
    return CheckedModel(
        name=model.name,
        findings=judgement.findings,
        fails=failing,
        text=loggable("\n".join(_printable(line) for line in (*lines, f"{outcome}: {told}"))) + "\n",
        markdown=markdown(_failure(model.name, judgement, outcome)),
        results=results,
        suite=_suite(model, place, judgement, failing=failing, tool=tool),
        placed=[(finding, place) for finding in _named(judgement.findings, model.name)],
    )


def _failure(name: str, judgement: Judgement, outcome: str) -> Document:
    title = f"Analyzer check of {name}"
    said = (Text(text=f"{one.message}. Fix: {one.fix}.") for one in judgement.findings)
    headline = Headline(name=title, subject=tally(judgement.findings), sentence=outcome)
    return Document(title=title, sections=(Section(name="check", blocks=(headline, *said)),))


def _named(findings: Sequence[Finding], name: str) -> tuple[Finding, ...]:
    """Findings that say whose they are, where those of many models stand in one list."""
    return tuple(replace(finding, message=f"{name}: {finding.message}") for finding in findings)


def _tell(result: dict[str, Any], name: str) -> None:
    """A result's model; the same file, asked about twice, has results that are not each other's."""
    result["properties"] |= {"model": name}
    old = result["partialFingerprints"]["operator/v1"]
    result["partialFingerprints"] = {"operator/v1": sarif.fingerprint_of([name, old])}


def _printable(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def _suite(
    model: FleetModel, place: FindingPlace, judgement: Judgement, *, failing: bool, tool: Tool
) -> ET.Element:
    suite = ET.Element("testsuite", name=junit.xml_text(f"{tool.name} check {model.name}"))
    for finding in (*judgement.findings, *judgement.ignored):
        case = ET.SubElement(
            suite,
            "testcase",
            classname=junit.xml_text(f"analyzer.{model.name}"),
            name=rule_label(finding.code),
            file=junit.xml_text(place.file),
        )
        if finding not in judgement.findings:
            ET.SubElement(case, "skipped", message=junit.xml_text(judgement.ignored[0].reason or "ignored"))
        elif failing:
            failure = ET.SubElement(case, "failure", type=finding.code, message=junit.xml_text(finding.message))
            failure.text = junit.xml_text(f"fix: {finding.fix}")
        else:
            ET.SubElement(case, "system-out").text = junit.xml_text(f"{finding.message}\nfix: {finding.fix}")
    return junit.counted(suite)


def render_fleet(told: CheckedFleet, name: str) -> str:
    """The check in this format, one of ``FORMATS``."""
    writers: Mapping[str, Callable[[CheckedFleet], str]] = {
        "text": _text,
        "markdown": fleet_markdown,
        "sarif": _sarif,
        "junit": lambda one: junit.document_of(one.tool.name, [model.suite for model in one.models]),
        "github": lambda one: github.commands_of(
            [placed for model in one.models for placed in model.placed], _subject(one)
        ),
    }
    return writers[name](told)


def _subject(told: CheckedFleet) -> str:
    left = f"; {plural(told.left, 'model')} not done yet" if told.left else ""
    return f"{told.name}, {plural(len(told.models), 'model')}{left}"


def _text(told: CheckedFleet) -> str:
    every = [finding for model in told.models for finding in model.findings]
    failing = told.failing
    result = f"failed in {plural(len(failing), 'model')}" if failing else "passed"
    parts = [model.text for model in told.models]
    return "\n".join([*parts, loggable(printable(f"{result}: {tally(every)} ({_subject(told)})")) + "\n"])


def fleet_markdown(told: CheckedFleet) -> str:
    """Return a table of all models, and under it what each of those says by which the check fails."""
    failing = told.failing
    result = f"failed in {plural(len(failing), 'model')}" if failing else "passed"
    models = Table(
        title="Models",
        head=("Model", "Check", "Findings"),
        rows=tuple(
            (model.name, "failed" if model.fails else "passed", tally(model.findings)) for model in told.models
        ),
    )
    headline = Headline(name="Analyzer check of a fleet", subject=_subject(told), sentence=result, level=1)
    shown = Document(title=told.name, sections=(Section(name="check", blocks=(headline, models)),))
    return "\n".join((markdown(shown), *(model.markdown for model in failing)))


def _sarif(told: CheckedFleet) -> str:
    results = [result for model in told.models for result in model.results]
    return sarif.log_of(told.tool, told.name, results, {"models": [model.name for model in told.models]})
