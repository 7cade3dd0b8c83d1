"""SARIF 2.1.0: findings for code scanning and editors (OASIS, Static Analysis Results Interchange Format)."""

from __future__ import annotations

from hashlib import sha256
from importlib import metadata
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from analyzer.checks import FAMILIES, CheckRule, rules
from analyzer.checks.baseline import comments_on
from analyzer.record.analysis import Analysis, Tool, Where
from analyzer.report.findings_text import Check, CheckedModel, PlacedFinding, check_of
from analyzer.report.markdown import ascii_json

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
# The name that CodeQL and most other tools give the repository's root; the standard leaves it free.
_ROOT = "%SRCROOT%"


def render(subject: Analysis | Check) -> str:
    """Return the findings as one SARIF log with one run; what the settings set aside is in it, suppressed.

    Paths are relative to the repository (``%SRCROOT%``). A finding without a line of its own stands at line 1
    of the model's file, since code scanning drops results without a place.
    """
    check = check_of(subject)
    results: list[dict[str, Any]] = []
    for model in check.models:
        results += (_result(one, model, check) for one in model.findings)
        results += (_result(one, model, check) | _suppressed(one) for one in model.ignored)
    run = {
        "tool": {"driver": _driver(check.tool)},
        "automationDetails": {"id": f"{check.tool.name}/{check.name}"},
        "invocations": [{"executionSuccessful": True}],
        "results": results,
        "properties": check.properties,
    }
    return ascii_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _suppressed(one: PlacedFinding) -> dict[str, Any]:
    """Return the keys of a result that is set aside, by a comment on its line or in a file of settings."""
    where = Where(file=one.file, line=one.line or 0, code=one.code)
    in_source = any(comment.covers(one.finding.code) for comment in comments_on([where]).values())
    kind, reason = "inSource" if in_source else "external", one.finding.reason or "ignored"
    return {"suppressions": [{"kind": kind, "status": "accepted", "justification": reason}]}


def _driver(tool: Tool) -> dict[str, Any]:
    where = home_page()
    return {
        "name": tool.name,
        "version": tool.version,
        **({"informationUri": where} if where else {}),
        "rules": [_descriptor(rule) for rule in rules()],
    }


def home_page() -> str | None:
    """Return the address in the installed package; a checkout and a package without links have none."""
    try:
        links = metadata.metadata("onnx-analyzer").get_all("Project-URL", [])
    except metadata.PackageNotFoundError:
        return None
    named = dict(link.split(", ", 1) for link in links)
    return named.get("Source")


def _descriptor(rule: CheckRule) -> dict[str, Any]:
    text = f"{rule.what}\n\n{rule.why}\n\nFix: {rule.fix}\n\nExample: {rule.example}"
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.what},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"tags": [FAMILIES[rule.code[:2]]]},
    }


def _result(one: PlacedFinding, model: CheckedModel, check: Check) -> dict[str, Any]:
    """Return a finding as a result."""
    finding = one.finding
    # An index into the driver's rules, in their order there; of a rule that this version does not know none.
    codes = [rule.code for rule in rules()]
    index = {"ruleIndex": codes.index(finding.code)} if finding.code in codes else {}
    properties: dict[str, Any] = {"fix": finding.fix, "certain": finding.certain}
    figures = {"secondsPerInference": finding.seconds, "bytesPerInference": finding.bytes}
    properties |= {key: value for key, value in figures.items() if value is not None}
    properties |= {"model": model.name} if check.several else {}
    return {
        "ruleId": finding.code,
        **index,
        "level": finding.severity,
        "message": {"text": f"{check.message(model, finding)}. Fix: {finding.fix}."},
        "locations": [_location(one)],
        "partialFingerprints": {"operator/v1": _fingerprint(one, model, check)},
        "properties": properties,
    }


def _location(one: PlacedFinding) -> dict[str, Any]:
    # Lines count from 1; a record of somebody else's may say 0.
    region: dict[str, Any] = {"startLine": max(one.line or 1, 1)}
    if one.code:
        region["snippet"] = {"text": one.code}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(one.file), "region": region}}
    operator = one.operator
    if operator is not None:
        qualified = f"{operator.module}.{operator.name}" if operator.module else operator.name
        location["logicalLocations"] = [
            {"name": operator.name, "fullyQualifiedName": qualified, "kind": "member"}
        ]
    return location


def _artifact(file: str) -> dict[str, str]:
    """Return a path as a URI reference: relative to the repository, or absolute where it lies outside."""
    # A record may have been written on another system than the one that renders it.
    windows = PureWindowsPath(file.encode("utf-8", "replace").decode("utf-8"))
    if windows.drive and windows.is_absolute():
        return {"uri": windows.as_uri()}
    path = PurePosixPath(file.replace("\\", "/"))
    if path.is_absolute():
        return {"uri": f"file://{quote(_bytes(str(path)))}"}  # `as_uri` stops at what is no UTF-8
    return {"uri": quote(_bytes(str(path))), "uriBaseId": _ROOT}


def _bytes(path: str) -> bytes:
    """Return a path as the file system has it: Python holds bytes that are no UTF-8 as halves of characters."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # halves of other characters, which no file system gave
        return path.encode("utf-8", "replace")


def _fingerprint(one: PlacedFinding, model: CheckedModel, check: Check) -> str:
    """Return what stays when lines move and operators are renumbered: rule, module, type, the line's text."""
    parts = [one.finding.code, model.model, *filter(None, [one.finding.device])]
    if one.operator is not None:
        # Neither index nor line: an edit above would make every finding below it a new one.
        parts += [one.operator.module, one.operator.op_type, one.code]
    # The same file, twice among several, has results that are not each other's.
    return _hash(model.name, _hash(*parts)) if check.several else _hash(*parts)


def _hash(*parts: str) -> str:
    # A path of bytes that are no UTF-8 reaches here as surrogates; a strict encoding would stop at them.
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
