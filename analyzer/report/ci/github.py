"""GitHub Actions: findings as workflow commands, which annotate the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.record.analysis import Analysis, Finding
from analyzer.report.findings_text import (
    FindingPlace,
    by_severity,
    cost_of,
    place_of,
    render_markdown,
    rule_label,
    subject_line,
    tally,
)
from analyzer.text import without_controls

# GitHub's own word for a note.
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
# GitHub shows ten annotations of each kind for a step and drops the rest without a word.
SHOWN = 10


def render(analysis: Analysis) -> str:
    """Return one workflow command for each finding, the gravest first, and a last line in plain text."""
    placed = [(finding, place_of(finding, analysis)) for finding in analysis.findings]
    return commands_of(placed, subject_line(analysis))


def commands_of(placed: Sequence[tuple[Finding, FindingPlace]], subject: str) -> str:
    """Return the commands of findings with their places, and a last line that says what was checked."""
    place = {id(finding): where for finding, where in placed}
    findings = by_severity(finding for finding, _ in placed)
    lines = [_command(finding, place[id(finding)]) for finding in findings]
    for severity in _COMMANDS:
        hidden = sum(finding.severity == severity for finding in findings) - SHOWN
        if hidden > 0:
            lines.append(
                f"{hidden} more of severity {severity} are in the log; GitHub annotates {SHOWN} of a kind"
            )
    lines.append(f"{tally(findings)} ({_data(subject)})")
    return "\n".join(lines) + "\n"


def summary(analysis: Analysis, *, fail_on: str = "error") -> str:
    """Return the job's summary page, in Markdown (for the file that ``$GITHUB_STEP_SUMMARY`` names)."""
    return render_markdown(analysis, fail_on=fail_on)


def _command(finding: Finding, place: FindingPlace) -> str:
    properties = {"file": place.file}
    if place.line is not None:
        properties["line"] = str(place.line)
    properties["title"] = rule_label(finding.code)
    written = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    # An annotation is plain text, shown with its line breaks: what, what it costs, what to do.
    cost = f"\nCost: {cost_of(finding)} per inference." if cost_of(finding) else ""
    text = f"{finding.message}.{cost}\nFix: {finding.fix}."
    return f"::{_COMMANDS[finding.severity]} {written}::{_data(text)}"


def _data(text: str) -> str:
    """Escape as the runner's toolkit escapes a command's message."""
    # escapeData in actions/toolkit, packages/core/src/command.ts; % first, as the others write one.
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    # Wherever it stands, "##[" begins a command of the older form, which the toolkit knows nothing of.
    return without_controls(escaped).replace("##[", "# #[")


def _property(text: str) -> str:
    """Escape as the runner's toolkit escapes a command's property."""
    # escapeProperty in the same file: a colon ends the properties, a comma ends one of them.
    return _data(text).replace(":", "%3A").replace(",", "%2C")
