"""JUnit XML: every rule a test case, for the test page of a CI server."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from analyzer.checks import rules
from analyzer.record.analysis import Analysis
from analyzer.report.findings_text import Check, CheckedModel, PlacedFinding, check_of, rule_label
from analyzer.text import loggable

_COUNTS = ("tests", "failures", "errors", "skipped")


def render(subject: Analysis | Check, *, fail_on: str = "error") -> str:
    """Return a test suite a model: a case for each finding, and one for each rule that found nothing.

    A finding of severity ``fail_on`` or graver is a failure; a lesser one is a passed case whose output holds
    the finding; what the settings set aside is skipped, with the reason.
    """
    check = check_of(subject, fail_on)
    suites = [_suite(model, check.tool.name) for model in check.models]
    counts = {key: str(sum(int(suite.attrib[key]) for suite in suites)) for key in _COUNTS}
    root = ET.Element("testsuites", {"name": xml_text(check.tool.name), **counts})
    root.extend(suites)
    ET.indent(root)
    # For text ("unicode") ElementTree writes no declaration of its own.
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + loggable(ET.tostring(root, encoding="unicode")) + "\n"


def _suite(model: CheckedModel, tool: str) -> ET.Element:
    suite = ET.Element("testsuite", name=xml_text(f"{tool} check {model.name}"))
    # Nothing passed of a model that could not be analysed.
    known = [rule.code for rule in rules()] if model.analysed else []
    result = {one.finding.code for one in (*model.findings, *model.ignored)}
    # A record of a later version may hold findings of rules that this one does not know.
    for code in (*known, *sorted(result - {*known})):
        # A rule that found nothing is a passed test: a server can then show when it began to fail.
        if code not in result:
            suite.append(_case(code, None, model))
        for one in model.findings:
            if one.finding.code != code:
                continue
            case = _case(code, one, model)
            body = xml_text("\n".join((*one.lines, model.subject)))
            if model.fails_by(one):
                message = xml_text(one.finding.message)
                ET.SubElement(case, "failure", type=xml_text(code), message=message).text = body
            else:
                ET.SubElement(case, "system-out").text = body
            suite.append(case)
        for one in model.ignored:
            if one.finding.code == code:
                case = _case(code, one, model)
                ET.SubElement(case, "skipped", message=xml_text(one.finding.reason or "ignored"))
                suite.append(case)
    # An error is a test that broke; a model that cannot be analysed ends the command with status 2 instead.
    failures, skipped = (len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "skipped"))
    counts = zip(_COUNTS, (len(suite), failures, 0, skipped), strict=True)
    suite.attrib.update({key: str(value) for key, value in counts})
    return suite


def _case(code: str, one: PlacedFinding | None, model: CheckedModel) -> ET.Element:
    attributes = {"classname": xml_text(f"analyzer.{model.model}"), "name": xml_text(rule_label(code))}
    if one is not None:
        operator = one.operator
        about = one.finding.device or (operator and (operator.module or operator.name))
        if about:
            attributes["name"] += xml_text(f" [{about}]")
        attributes["file"] = xml_text(one.file)
        if one.line is not None:
            attributes["line"] = str(one.line)
    return ET.Element("testcase", attributes)


def xml_text(text: str) -> str:
    """Return text with the characters that XML 1.0 forbids replaced (section 2.2 of the standard)."""
    # Beside what `loggable` replaces: U+FFFE and U+FFFF, which are no characters.
    return re.sub(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]", "\N{REPLACEMENT CHARACTER}", text)
