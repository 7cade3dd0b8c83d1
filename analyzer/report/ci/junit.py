"""JUnit XML: every rule a test case, for the test page of a CI server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from analyzer.checks import fails, rules
from analyzer.checks.settings import CheckSettings
from analyzer.record.analysis import Analysis, Finding
from analyzer.report.findings_text import lines_of, operator_of, place_of, rule_label, subject_line
from analyzer.text import loggable


def render(analysis: Analysis, *, fail_on: str = "error") -> str:
    """Return one test suite: a case for each finding, and one for each rule that found nothing.

    A finding of severity ``fail_on`` or graver is a failure; a lesser one is a passed case whose output holds
    the finding; what the settings set aside is skipped, with the reason.
    """
    return document_of(analysis.tool.name, [suite_of(analysis, analysis.model.name, fail_on=fail_on)])


def suite_of(analysis: Analysis, name: str, *, fail_on: str) -> ET.Element:
    """Return the suite of a model that is called ``name``."""
    # By identity: two findings of one rule may be equal word for word, and each is a case.
    failing = set(map(id, fails(analysis.findings, CheckSettings(fail_on=fail_on))))
    suite = ET.Element("testsuite", name=xml_text(f"{analysis.tool.name} check {name}"))
    known = [rule.code for rule in rules()]
    found = {finding.code for finding in (*analysis.findings, *analysis.ignored)}
    # A record of a later version may hold findings of rules that this one does not know.
    for code in (*known, *sorted(found - {*known})):
        findings = [finding for finding in analysis.findings if finding.code == code]
        ignored = [finding for finding in analysis.ignored if finding.code == code]
        # A rule that found nothing is a passed test: a server can then show when it began to fail.
        if not findings and not ignored:
            suite.append(_case(code, None, analysis))
        for finding in findings:
            case = _case(code, finding, analysis)
            body = _body(finding, analysis)
            if id(finding) in failing:
                failure = ET.SubElement(case, "failure", type=xml_text(code), message=xml_text(finding.message))
                failure.text = body
            else:
                ET.SubElement(case, "system-out").text = body
            suite.append(case)
        for finding in ignored:
            case = _case(code, finding, analysis)
            ET.SubElement(case, "skipped", message=xml_text(finding.reason or "ignored"))
            suite.append(case)
    return counted(suite)


def counted(suite: ET.Element) -> ET.Element:
    """Return a suite with how many cases it has of each outcome."""
    # An error is a test that broke; a model that cannot be analysed ends the command with status 2 instead.
    counts = {"tests": len(suite), "failures": len(suite.findall("testcase/failure")), "errors": 0}
    counts["skipped"] = len(suite.findall("testcase/skipped"))
    suite.attrib.update({key: str(value) for key, value in counts.items()})
    return suite


def document_of(tool: str, suites: Sequence[ET.Element]) -> str:
    """Return the whole file."""
    counts = {
        key: str(sum(int(suite.attrib[key]) for suite in suites))
        for key in ("tests", "failures", "errors", "skipped")
    }
    root = ET.Element("testsuites", {"name": xml_text(tool), **counts})
    root.extend(suites)
    ET.indent(root)
    # For text ("unicode") ElementTree writes no declaration of its own.
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + loggable(ET.tostring(root, encoding="unicode")) + "\n"


def _case(code: str, finding: Finding | None, analysis: Analysis) -> ET.Element:
    operator = operator_of(finding, analysis) if finding is not None else None
    where = f" [{operator.module or operator.name}]" if operator is not None else ""
    if finding is not None and finding.device:
        where = f" [{finding.device}]"
    attributes = {
        "classname": xml_text(f"analyzer.{analysis.model.name}"),
        "name": xml_text(f"{rule_label(code)}{where}"),
    }
    if finding is not None:
        place = place_of(finding, analysis)
        attributes["file"] = xml_text(place.file)
        if place.line is not None:
            attributes["line"] = str(place.line)
    return ET.Element("testcase", attributes)


def _body(finding: Finding, analysis: Analysis) -> str:
    return xml_text("\n".join((*lines_of(finding, place_of(finding, analysis)), subject_line(analysis))))


def xml_text(text: str) -> str:
    """Return text with the characters that XML 1.0 forbids replaced (section 2.2 of the standard)."""
    # Beside what `loggable` replaces: U+FFFE and U+FFFF, which are no characters.
    return re.sub(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]", "\N{REPLACEMENT CHARACTER}", text)
