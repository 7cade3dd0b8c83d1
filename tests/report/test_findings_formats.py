"""The formats that a CI server reads, from findings with real codes on an invented network."""

import json
from collections.abc import Callable
from dataclasses import replace
from email.message import Message
from importlib import metadata
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import rendering
from report_factory import analysis
from sarif_structure import SARIF

from analyzer.checks import rules
from analyzer.record.analysis import Analysis, Finding, Where
from analyzer.report import findings_text
from analyzer.report.ci import github, junit, sarif

POOL = Finding(
    code="A101",
    severity="error",
    operator=3,
    message="MaxPool runs on the CPU",
    fix="export at opset 21",
    seconds=1.5e-3,
    bytes=2_000_000,
)
SLOW = Finding(code="A203", severity="warning", operator=None, message="faster on the CPU", fix="run it there")
NOTE = Finding(
    code="A202", severity="note", operator=0, message="launch-bound", fix="raise the batch", certain=False
)
KNOWN = replace(POOL, operator=7, reason="once a batch, see #12")
NASTY = '</script><img src=x onerror=alert(1)>|*_`%0A::error::\r\n\x1b[31m"&,'


def checked(*found: Finding, ignored: tuple[Finding, ...] = (), **changes: Any) -> Analysis:
    return analysis(findings=found, ignored=ignored, **changes)


def nasty() -> Analysis:
    """Every string that a model can bring holds what would break a format."""
    base = checked(replace(POOL, message=NASTY, fix=NASTY), ignored=(replace(POOL, reason=NASTY),))
    source = Where(file=f"a b/{NASTY}.py", line=3, code=NASTY)
    operators = tuple(replace(op, name=NASTY, module=NASTY, source=source) for op in base.operators)
    return replace(base, operators=operators, model=replace(base.model, name=NASTY, source=NASTY))


# --- SARIF ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", [checked(), checked(POOL, SLOW, NOTE, ignored=(KNOWN,)), nasty()])
def test_sarif_uses_only_what_the_standard_has_and_all_that_it_requires(subject: Analysis) -> None:
    jsonschema.validate(
        json.loads(sarif.render(subject)),
        SARIF,
        cls=jsonschema.Draft7Validator,
        format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER,
    )


@pytest.mark.parametrize("subject", [checked(), checked(POOL)], ids=["no findings", "findings"])
def test_sarif_is_read_by_models_that_others_made_from_the_standard(subject: Analysis) -> None:
    from sarif_pydantic import Sarif

    log = Sarif.model_validate(json.loads(sarif.render(subject)))
    assert len(log.runs[0].results or []) == len(subject.findings)


def test_the_structure_that_the_tests_hold_sarif_to_refuses_what_is_wrong() -> None:
    log = json.loads(sarif.render(checked(POOL)))
    for path, value in (
        (("runs", 0, "results", 0, "level"), "fatal"),
        (("runs", 0, "results", 0, "mesage"), {"text": "x"}),
        (("version",), "2.0.0"),
        (("runs", 0, "results", 0, "locations", 0, "physicalLocation", "region", "startLine"), 0),
    ):
        broken = json.loads(json.dumps(log))
        place = broken
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SARIF, cls=jsonschema.Draft7Validator)


def test_a_sarif_result_stands_at_the_users_line_and_points_to_its_rule() -> None:
    (run,) = json.loads(sarif.render(checked(POOL)))["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "samples/imaginary.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 13, "snippet": {"text": "x = self.maxpool(x)"}}
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "A101"
    assert result["level"] == "error"
    assert result["properties"]["secondsPerInference"] == 1.5e-3
    assert result["properties"]["bytesPerInference"] == 2_000_000
    assert "export at opset 21" in result["message"]["text"]


def installed_with(monkeypatch: pytest.MonkeyPatch, *links: str) -> None:
    about = Message()
    for link in links:
        about["Project-URL"] = link
    monkeypatch.setattr(metadata, "metadata", lambda name: {"onnx-analyzer": about}[name])


def test_sarif_leads_to_where_the_installed_package_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_with(monkeypatch, "Issues, https://code.example/o/n/issues", "Source, https://code.example/o/n")
    log = json.loads(sarif.render(checked()))
    assert log["runs"][0]["tool"]["driver"]["informationUri"] == "https://code.example/o/n"
    jsonschema.validate(log, SARIF)


def test_sarif_names_no_address_where_the_package_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_with(monkeypatch)
    assert "informationUri" not in json.loads(sarif.render(checked()))["runs"][0]["tool"]["driver"]

    def not_installed(name: str) -> Message:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", not_installed)
    assert "informationUri" not in json.loads(sarif.render(checked()))["runs"][0]["tool"]["driver"]


def test_a_finding_of_the_whole_model_stands_at_the_models_file() -> None:
    subject = checked(SLOW)
    subject = replace(subject, model=replace(subject.model, source="samples/imaginary.py:Net"))
    (result,) = json.loads(sarif.render(subject))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "samples/imaginary.py"
    assert place["region"]["startLine"] == 1


def test_what_is_ignored_is_suppressed_in_sarif_with_its_reason() -> None:
    (result,) = json.loads(sarif.render(checked(ignored=(KNOWN,))))["runs"][0]["results"]
    (suppression,) = result["suppressions"]
    assert suppression["kind"] == "external"
    assert suppression["justification"] == "once a batch, see #12"


def test_a_fingerprint_survives_moved_lines_and_new_names_but_not_another_module() -> None:
    def fingerprint(**changes: Any) -> Any:
        subject = checked(POOL)
        operators = tuple(replace(op, **changes) if op.index == 3 else op for op in subject.operators)
        log = json.loads(sarif.render(replace(subject, operators=operators)))
        return log["runs"][0]["results"][0]["partialFingerprints"]

    moved = Where(file="samples/imaginary.py", line=99, code="x = self.maxpool(x)")
    assert fingerprint() == fingerprint(source=moved, name="renamed")
    assert fingerprint() != fingerprint(module="elsewhere")


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a b/ü.py", "a%20b/%C3%BC.py"),
        ("C:\\code\\m.py", "file:///C:/code/m.py"),
        ("/opt/m.py", "file:///opt/m.py"),
        ("sub\\m.py", "sub/m.py"),
    ],
)
def test_paths_become_uris(file: str, uri: str) -> None:
    subject = checked(POOL)
    operators = tuple(replace(op, source=Where(file=file, line=1, code="")) for op in subject.operators)
    (result,) = json.loads(sarif.render(replace(subject, operators=operators)))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


# --- JUnit ----------------------------------------------------------------------------------------------


def test_junit_counts_what_it_holds() -> None:
    suite = ET.fromstring(junit.render(checked(POOL, SLOW, NOTE, ignored=(KNOWN,)))).find("testsuite")
    cases = suite.findall("testcase")
    # Every rule has a case; A101 has two, one failed and one skipped.
    assert len(cases) == len(rules()) + 1
    assert suite.get("tests") == str(len(cases))
    assert (suite.get("failures"), suite.get("skipped"), suite.get("errors")) == ("1", "1", "0")
    assert len(suite.findall("testcase/failure")) == 1
    assert suite.find("testcase/skipped").get("message") == "once a batch, see #12"


def test_a_junit_failure_tells_place_cost_and_fix() -> None:
    suite = ET.fromstring(junit.render(checked(POOL))).find("testsuite")
    (case,) = [case for case in suite if case.find("failure") is not None]
    assert (case.get("file"), case.get("line")) == ("samples/imaginary.py", "13")
    text = case.find("failure").text
    for words in ("samples/imaginary.py:13", "1.50 ms", "2.00 MB", "export at opset 21"):
        assert words in text


def test_what_fails_in_junit_follows_the_threshold() -> None:
    def failures(level: Any) -> Any:
        return ET.fromstring(junit.render(checked(POOL, SLOW, NOTE), fail_on=level)).get("failures")

    assert [failures(level) for level in ("never", "error", "warning", "note")] == ["0", "1", "2", "3"]


def test_junit_stays_well_formed_whatever_the_model_is_called() -> None:
    suite = ET.fromstring(junit.render(nasty())).find("testsuite")
    assert suite.find("testcase/failure").get("message").startswith("</script><img")


# --- GitHub ---------------------------------------------------------------------------------------------


def unescaped(text: str) -> str:
    """What GitHub's runner makes of an escaped value."""
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_a_finding_becomes_a_workflow_command_at_its_line() -> None:
    first = github.render(checked(POOL)).splitlines()[0]
    head, _, message = first.removeprefix("::").partition("::")
    name, _, written = head.partition(" ")
    properties = dict(part.split("=", 1) for part in written.split(","))
    assert name == "error"
    assert properties == {"file": "samples/imaginary.py", "line": "13", "title": "A101 no-cuda-kernel"}
    assert unescaped(message).splitlines() == [
        "MaxPool runs on the CPU.",
        "Cost: 1.50 ms, 2.00 MB per inference.",
        "Fix: export at opset 21.",
    ]


def test_severities_become_the_commands_that_github_knows_and_the_gravest_comes_first() -> None:
    lines = github.render(checked(NOTE, SLOW, POOL)).splitlines()
    assert [line.split(" ")[0] for line in lines[:3]] == ["::error", "::warning", "::notice"]
    assert lines[3].startswith("1 error, 1 warning, 1 note")


def test_a_model_cannot_smuggle_in_a_command_of_its_own() -> None:
    lines = github.render(nasty()).splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert len(commands) == 1
    head = commands[0].removeprefix("::").partition("::")[0]
    properties = dict(part.split("=", 1) for part in head.partition(" ")[2].split(","))
    assert unescaped(properties["file"]) == f"a b/{NASTY}.py".replace("\x1b", "\N{REPLACEMENT CHARACTER}")


def test_more_annotations_than_github_shows_are_said_to_be_in_the_log() -> None:
    lines = github.render(checked(*[POOL] * 12)).splitlines()
    assert sum(line.startswith("::error") for line in lines) == 12
    assert any(line.startswith("2 more of severity error") for line in lines)


# --- text and Markdown ----------------------------------------------------------------------------------


def test_text_puts_place_severity_code_cost_and_fix_where_a_compiler_puts_them() -> None:
    text = findings_text.render_text(checked(NOTE, POOL, ignored=(KNOWN,)))
    lines = text.splitlines()
    assert lines[0] == "samples/imaginary.py:13: error A101 MaxPool runs on the CPU"
    assert lines[1] == "    x = self.maxpool(x)"
    assert lines[2] == "    cost: 1.50 ms, 2.00 MB per inference"
    assert lines[3] == "    fix: export at opset 21"
    assert "ignored: A101" in text
    assert "once a batch, see #12" in text
    assert lines[-1].startswith("failed: 1 error, 1 note (imaginary at opset 22, batch 8")


def test_text_says_passed_when_only_lesser_findings_are_there() -> None:
    assert (
        findings_text.render_text(checked(NOTE, SLOW)).splitlines()[-1].startswith("passed: 1 warning, 1 note")
    )
    assert findings_text.render_text(checked()).splitlines()[-1].startswith("passed: no findings")
    assert findings_text.render_text(checked(SLOW), fail_on="warning").splitlines()[-1].startswith("failed")


def test_nothing_in_text_can_steer_a_terminal_or_begin_a_line() -> None:
    text = findings_text.render_text(nasty())
    assert "\x1b" not in text
    assert "\r" not in text
    assert not any(line.startswith("::") for line in text.splitlines())


def test_markdown_keeps_its_table_whatever_the_model_is_called() -> None:
    lines = findings_text.render_markdown(nasty()).splitlines()
    rows = [line for line in lines if line.startswith("| error")]
    assert len(rows) == 1
    unescaped_bars = rows[0].replace("\\|", "").count("|")
    assert unescaped_bars == 7  # Six columns.
    assert "<img" not in "\n".join(lines)


@pytest.mark.parametrize("render", [findings_text.render_markdown, rendering.markdown])
def test_markdown_mentions_nobody_and_holds_no_formula(render: Callable[..., Any]) -> None:
    bait = replace(POOL, message="@octocat wants $x$", fix="ask @octocat")
    text = render(checked(bait))
    assert "octocat wants" in text
    assert "@" not in text
    # An error stands beside the answer as well.
    assert text.count("$x") == text.count("\\$x") >= 1
