"""Findings for human eyes: plain text for a terminal or a log, Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analyzer.checks import fails, rules
from analyzer.checks.settings import SEVERITIES, CheckSettings
from analyzer.record.analysis import Analysis, Finding, OperatorResult
from analyzer.record.batch_axis import batch_of, has_batch
from analyzer.report import device_rows, terminal
from analyzer.report.document import Document, Headline, Section, Table, items
from analyzer.report.escaping import printable
from analyzer.report.markdown import markdown
from analyzer.report.summary.model_facts import in_precision
from analyzer.text import loggable, plural
from analyzer.units import byte_count, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingPlace:
    """Where a finding is: a file and a line, and the line's text; the model's own file where it has no line."""

    file: str
    line: int | None
    code: str = ""

    def __str__(self) -> str:
        """``file:line``, as editors and terminals make it a link."""
        return f"{self.file}:{self.line}" if self.line is not None else self.file


def operator_of(finding: Finding, analysis: Analysis) -> OperatorResult | None:
    """Return the operator that a finding is about."""
    # A record of somebody else's may name an operator that it does not hold.
    if finding.operator is None or not 0 <= finding.operator < len(analysis.operators):
        return None
    return analysis.operators[finding.operator]


def place_of(finding: Finding, analysis: Analysis) -> FindingPlace:
    """Return the user's source line of a finding, or else the model's file."""
    operator = operator_of(finding, analysis)
    if operator is not None and operator.source is not None:
        return FindingPlace(
            file=operator.source.file, line=operator.source.line, code=operator.source.code.strip()
        )
    return FindingPlace(file=file_of(analysis.model.source), line=None)


def file_of(source: str) -> str:
    """Return the file that a reference names, without the name after the colon."""
    # The colon of a Windows drive has a path after it, which no model's name is.
    head, colon, tail = source.rpartition(":")
    return head if colon and head and not any(char in tail for char in "/\\.") else source


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the gravest first, otherwise as they came."""
    # Python's sort is stable: within a severity the rules' own order stays.
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def cost_of(finding: Finding) -> str:
    """Return ``1.2 ms, 64 MB`` of what is known, empty where nothing is."""
    figures = [seconds(finding.seconds)] if finding.seconds is not None else []
    if finding.bytes is not None:
        figures.append(byte_count(finding.bytes))
    return ", ".join(figures)


def rule_label(code: str) -> str:
    """Return ``A101 no-cuda-kernel``; the code alone of a rule that this version does not know."""
    name = next((rule.name for rule in rules() if rule.code == code), "")
    return f"{code} {name}".strip()


def tally(findings: Iterable[Finding]) -> str:
    """Return ``2 errors, 1 warning, 3 notes``; ``no findings``."""
    counts = dict.fromkeys(SEVERITIES, 0)
    for finding in findings:
        counts[finding.severity] += 1
    parts = [plural(count, name) for name, count in counts.items() if count]
    return ", ".join(parts) or "no findings"


def subject_line(analysis: Analysis) -> str:
    """Return the model, its batch and its devices in one line."""
    model, gpu = analysis.model, analysis.devices.gpu
    more = len(analysis.alternatives)
    batch = f", batch {batch_of(analysis)}" if batch_of(analysis) is not None else ""
    batch = batch if has_batch(analysis) else ", per call"
    others = f", {plural(more, 'further GPU')}" if more else ""
    cpu = analysis.devices.cpu.name
    target = f"{gpu.name}{others} in a host with {cpu}" if gpu is not None else cpu
    # A model of classical operators alone imports no opset of ONNX's own.
    opset = f" at opset {model.opset}" if model.opset else ""
    precision = in_precision(analysis).removesuffix(", ")
    said = ", ".join(filter(None, (f"{model.name}{opset}{batch}", precision)))
    return f"{said}, for {target}"


def lines_of(finding: Finding, place: FindingPlace) -> list[str]:
    """Return a finding as a compiler writes it, the line of source, the cost where it is known, and the fix."""
    cost = cost_of(finding)
    return [
        # ``file:line: severity``: the form of compilers, which editors and terminals turn into links.
        f"{place}: {finding.severity} {finding.code} {finding.message}",
        *([place.code] if place.code else []),
        *([f"cost: {cost} per inference"] if cost else []),
        f"fix: {finding.fix}",
    ]


def passed(analysis: Analysis, fail_on: str = "error") -> bool:
    """Return whether nothing of this severity was found."""
    return not fails(analysis.findings, CheckSettings(fail_on=fail_on))


def render_text(analysis: Analysis, *, fail_on: str = "error") -> str:
    """Return the findings as a compiler writes them, the gravest first, and a last line that says it all."""
    lines: list[str] = []
    for finding in by_severity(analysis.findings):
        head, *more = lines_of(finding, place_of(finding, analysis))
        lines += [head, *(f"    {line}" for line in more), ""]
    for ignored in analysis.ignored:
        operator = operator_of(ignored, analysis)
        name = f" {operator.module or operator.name}" if operator is not None else ""
        lines.append(f"ignored: {ignored.code}{name}{': ' + ignored.reason if ignored.reason else ''}")
    if analysis.generation is None:  # of generation the plans are a step's, and no answer
        devices = Section(name="devices", blocks=(device_rows.table(analysis),))
        lines += terminal.text(Document(title="", sections=(devices,))).splitlines()
    result = "passed" if passed(analysis, fail_on) else "failed"
    lines.append(f"{result}: {tally(analysis.findings)} ({subject_line(analysis)})")
    return loggable("\n".join(printable(line) for line in lines)) + "\n"


def render_markdown(analysis: Analysis, *, fail_on: str = "error") -> str:
    """Return the findings as a table for a job summary or a pull request's comment."""
    result = "passed" if passed(analysis, fail_on) else "failed"
    subject = f"{tally(analysis.findings)} in {subject_line(analysis)}"
    name = f"Analyzer check of {analysis.model.name}"
    blocks = (
        Headline(name=name, subject=subject, sentence=result),
        *([device_rows.table(analysis)] if analysis.generation is None else []),
        *([_findings(analysis)] if analysis.findings else []),
        *items("Ignored", tuple((one.code, f"{one.message} {one.reason}".strip()) for one in analysis.ignored)),
    )
    return markdown(Document(title=name, sections=(Section(name="check", blocks=blocks),)))


def _findings(analysis: Analysis) -> Table:
    found = by_severity(analysis.findings)
    return Table(
        title="Findings",
        head=("", "Rule", "Where", "What", "Cost per inference", "Fix"),
        rows=tuple(
            (
                one.severity,
                rule_label(one.code),
                str(place_of(one, analysis)),
                one.message,
                cost_of(one),
                one.fix,
            )
            for one in found
        ),
    )
