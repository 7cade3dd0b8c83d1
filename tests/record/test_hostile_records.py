"""A record that is no record, or a damaged one, is one clear error that names the place."""

import gc
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from analyzer.api import analyze_record
from analyzer.checks import evaluation, rules
from analyzer.checks.registry import Diagnostic
from analyzer.checks.settings import CheckSettings
from analyzer.cli import run_command_line
from analyzer.errors import AnalyzerError, RecordError
from analyzer.record import encoding, from_dict, from_json, load_report, to_json
from analyzer.report.compare import build, document
from analyzer.report.compare.build import compare
from analyzer.report.module_tree import tree

Record = Any


def refused(record: Record) -> str:
    with pytest.raises(RecordError) as caught:
        from_dict(record)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    return caught.value.message


def changed(text: str, path: str, value: object) -> Record:
    """The record with one value in place of another; the path is one of Python's own."""
    record = json.loads(text)
    exec(f"record{path} = value", {"record": record, "value": value})
    return record


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("['operators'][1]['flops']", "many", "operators[1].flops"),
        ("['operators'][1]['flops']", True, "operators[1].flops"),
        ("['operators'][1]['flops']", 0.5, "operators[1].flops"),
        ("['operators'][1]['flops']", -1, "operators[1].flops"),
        ("['operators'][1]['basis']", "guessed", "operators[1].basis"),
        ("['operators'][1]['cpu']['origin']", "dreamt", "operators[1].cpu.origin"),
        ("['operators'][1]['cpu']['time_s']", -1e-6, "operators[1].cpu.time_s"),
        ("['operators'][1]['cpu']['time_s']", 1e200, "operators[1].cpu.time_s"),
        ("['operators'][1]['verdict']['device']", "tpu", "operators[1].verdict.device"),
        ("['operators'][1]['placement']", 7, "operators[1].placement"),
        ("['operators'][1]['inputs'][0]['shape']", [1, -1], "operators[1].inputs[0].shape[1]"),
        ("['operators'][1]['attributes']", [], "operators[1].attributes"),
        ("['operators']", None, "operators"),
        ("['plans'][0]['name']", "tpu", "plans[0].name"),
        ("['plans'][0]['fits']", 1, "plans[0].fits"),
        ("['plans'][0]['usd_low_per_million']", -1e-6, "plans[0].usd_low_per_million"),
        ("['plans'][0]['energy_high_j']", 1e200, "plans[0].energy_high_j"),
        ("['devices']['cpu']['bandwidth_bytes_per_s']", 0, "devices.cpu.bandwidth_bytes_per_s"),
        ("['devices']['cpu']['peak_flops_per_s']['fp32']", "x", "devices.cpu.peak_flops_per_s"),
        ("['sweep'][0]['plans']['cpu']['latency_s']", [], "sweep[0].plans"),
        ("['sweep'][0]['plans']['tpu']", {}, "sweep[0].plans"),
        ("['environment']['timings_s']['load']", -1.0, "environment.timings_s"),
        ("['verdict']['device']", "x" * 10_000, "verdict.device"),
        ("['verdict']['device']", "a\nb", "verdict.device"),
        ("['kept']['batches']['rows'][0]", [1, "x"], "kept.batches.rows[0][1]"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_place(
    inference_text: str, path: str, value: object, place: str
) -> None:
    assert f" damaged at {place}" in refused(changed(inference_text, path, value))


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("['operators'][1]['index']", 0, "operators[1].index"),
        ("['operators'][0]['index']", 10**9, "operators[0].index"),
        ("['groups'][0]['members']", [99], "groups[0].members"),
        ("['groups'][0]['members']", [0, 0], "groups[0].members"),
        ("['groups'][0]['members']", [-1], "groups[0].members[0]"),
        ("['findings'][0]['operator']", 99, "findings[0].operator"),
        ("['kept']['batches']['looked_at']", list(range(1, 1_000_000)), "kept.batches.looked_at"),
        ("['bodies']", [{"operator": 99, "name": "b", "operators": 1, "passes": 1}], "bodies[0].operator"),
        ("['plans']", [], "plans"),
        ("['alternatives'][0]['plans']", [], "alternatives[0].plans"),
        ("['sweep'][0]['plans']", {}, "sweep[0].plans"),
        ("['model']['training']", True, "model.training"),
    ],
)
def test_a_part_that_points_at_nothing_is_named_with_its_place(
    inference_text: str, path: str, value: object, place: str
) -> None:
    assert f" damaged at {place}: " in refused(changed(inference_text, path, value))


def test_a_plan_that_stands_twice_is_refused(inference_text: str) -> None:
    record = json.loads(inference_text)
    record["plans"].append(record["plans"][0])
    assert "plans: a plan stands in it twice" in refused(record)


def test_an_ignored_finding_about_no_operator_is_refused(inference_text: str) -> None:
    record = json.loads(inference_text)
    record["ignored"] = [record["findings"][0] | {"operator": 99}]
    assert "ignored[0].operator" in refused(record)


def with_text(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


HEAD = '"schema_version": 1,'


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        pytest.param("[" * 50_000 + "]" * 50_000, "no valid JSON: maximum recursion", id="lists 50,000 deep"),
        pytest.param('{"a":' * 50_000 + "1" + "}" * 50_000, "maximum recursion", id="objects 50,000 deep"),
        pytest.param("9" * 400, "the number has too many digits", id="more than a float holds"),
        pytest.param("NaN", "no valid JSON", id="not a number"),
        pytest.param("-Infinity", "no valid JSON", id="infinite by name"),
        pytest.param('{"a": [0, "\\ud800"]}', "no valid JSON", id="half a character"),
        pytest.param('{"\\udfff": 1}', "no valid JSON", id="half a character as a key"),
        pytest.param('"' + "x" * 10, "no valid JSON", id="cut short"),
    ],
)
def test_json_that_no_record_holds_is_refused_even_where_no_key_is_known(
    inference_text: str, hostile: str, said: str
) -> None:
    text = with_text(inference_text, HEAD, f'{HEAD} "later": {hostile},')
    with pytest.raises(RecordError) as caught:
        from_json(text)
    assert said in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "1", '"x"', '{"schema_version": true, "operators": []}']
)
def test_what_is_no_record_is_said_to_be_none(text: str) -> None:
    with pytest.raises(RecordError, match=r"no report of analyze|no valid JSON"):
        from_json(text)


@pytest.mark.parametrize(
    ("tool", "hint"),
    [
        ({"version": "9.1"}, "Read it with analyze 9.1 or newer."),
        (["x"], "Read it with a newer version of analyze."),
        (None, "Read it with a newer version of analyze."),
        ({"version": 3}, "Read it with a newer version of analyze."),
    ],
)
def test_a_record_of_a_newer_schema_says_which_version_reads_it(tool: object, hint: str) -> None:
    with pytest.raises(RecordError, match="has schema 999; analyze") as caught:
        from_dict({"schema_version": 999, "operators": 7, "tool": tool})
    assert caught.value.hint == hint


@pytest.mark.parametrize("path", ["there\0is none", "."])
def test_a_path_that_no_file_can_have_is_refused(path: str) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        load_report(path)


@pytest.mark.parametrize(("limit", "least"), [("_MOST_BYTES", 1000), ("_MOST_PARTS", 100)])
def test_a_record_larger_than_any_that_is_read_is_said_to_be_before_it_is_parsed(
    inference_text: str, limit: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "large.json"
    file.write_text(inference_text, encoding="utf-8")
    monkeypatch.setattr(encoding, limit, least)
    with pytest.raises(RecordError, match=r"large\.json (is larger|holds more values)") as caught:
        load_report(file)
    assert caught.value.hint


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no /dev/zero on this system")
def test_a_device_without_an_end_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_MOST_BYTES", 10**6)
    with pytest.raises(RecordError, match="larger than 1 MB"):
        load_report("/dev/zero")


def test_a_record_of_a_hundred_thousand_operators_is_within_the_limits(inference_text: str) -> None:
    # Bytes of a large model's operator, its part of groups and replay data included: 2,056 in one of 100,000.
    assert encoding._MOST_BYTES > 100_000 * 2_056
    # The small record has 3 operators and much beside them: more for each than a large one.
    record = json.loads(inference_text)
    operator = json.dumps(record["operators"][0])
    assert 100_000 * (operator.count("{") + operator.count("[")) < encoding._MOST_PARTS


def test_the_garbage_collector_is_as_it_was_after_a_record_is_read(inference_text: str) -> None:
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        from_json(inference_text)
        assert gc.isenabled() == enabled
    gc.enable()


CONTRADICTIONS: list[tuple[str, object]] = [
    # Each is a value that the record's types allow, and that no operator has.
    ("['operators'][1]['attributes']['perm']", 1.5),
    ("['operators'][0]['attributes']", {"transB": "many", "alpha": [1], "axis": {"a": 1}}),
    ("['operators'][0]['inputs']", []),
    ("['operators'][0]['outputs']", []),
    ("['operators'][0]['inputs'][0]['shape']", None),
    ("['operators'][0]['inputs'][1]['dtype']", "nothing"),
    ("['operators'][0]['op_type']", "Conv"),
    ("['operators'][0]['op_type']", "Attention"),
    ("['kept']['values']", [[[10**30, "x", None, [1]], ["input", "0.weight"]]]),
    ("['kept']['opsets']", {}),
    ("['kept']['threads']", 0),
    ("['devices']['cpu']['peak_flops_per_s']", {}),
    ("['devices']['gpu']['peak_flops_per_s']", {}),
    ("['plans'][0]['latency_s']", 5e-324),
    ("['kept']['absent_inputs']", {"99": [0]}),
    ("['kept']['absent_inputs']", {"0": [2, 1]}),
    ("['kept']['batches']['flops']", [1]),
    ("['kept']['batches']['looked_at']", [4, 1]),
    ("['kept']['batches']['sizes'][0][0][0]", [1, 1, 1, 1, 1]),
    ("['kept']['batches']['sizes'][0][0][0]", [10**29, 10**29]),
    ("['kept']['batches']['sizes'][0][0]", [[1]]),
    ("['kept']['batches']['flops'][1]", 10**12),
    ("['kept']['batches']['rows'][1]", [10**30] * 7),
    ("['kept']['batches']['looked_at']", [64, 2**40]),
    ("['kept']['batches']['rows']", [[1]]),
    ("['operators'][1]['inputs'][0]['shape']", [10**16, 10**16]),
]


@pytest.mark.parametrize(("path", "value"), CONTRADICTIONS)
def test_a_record_that_contradicts_itself_is_decided_anew_or_refused(
    inference_text: str, path: str, value: object
) -> None:
    with suppress(AnalyzerError):
        analysis = from_dict(changed(inference_text, path, value))
        # What comes out is a record again: no figure is negative, infinite or NaN.
        from_json(to_json(analyze_record(analysis, gpu="a100", precision="int8")))


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("totals.macs", lambda record: record["totals"].update(macs=10**6)),
        ("totals.operators", lambda record: record["totals"].update(operators=10**6)),
        ("groups", lambda record: record["operators"][0]["cpu"].update(time_s=1.0)),
        ("groups[0].time_s", lambda record: record["groups"][0].update(low_s=1.0, high_s=2.0)),
        ("plans[0].latency_s", lambda record: record["plans"][0].update(latency_s=1e6)),
        ("costs[0].latency_s", lambda record: record["costs"][0].update(high_s=0.0)),
        ("plans[1].transfers.bytes", lambda record: record["plans"][1]["transfers"].update(bytes=10**6)),
    ],
)
def test_figures_that_contradict_each_other_are_refused(
    inference_text: str, place: str, change: Callable[[Any], object]
) -> None:
    record = json.loads(inference_text)
    change(record)
    with pytest.raises(RecordError, match=re.escape(f"damaged at {place}: ")):
        from_dict(record)


def test_a_measured_group_of_no_operator_is_no_damage(inference_text: str) -> None:
    """A session may share a constant among several operators: what its kernel takes is nobody's part."""
    record = json.loads(inference_text)
    record["groups"].append({**record["groups"][0], "name": "shared", "members": []})
    assert from_dict(record).groups[-1].members == ()


def test_figures_of_a_record_without_sense_are_dashes_and_no_fault(inference_text: str) -> None:
    record = json.loads(inference_text)
    for plan in record["plans"]:
        plan |= {"latency_s": 0.0, "low_s": -0.0, "high_s": 0, "throughput_per_s": 1e30, "energy_j": -0.0}
    for row in record["sweep"]:
        for plan in row["plans"].values():
            plan |= {"latency_s": 5e-324, "low_s": 5e-324, "high_s": 5e-324}
    record["verdict"] |= {"low": -0.0, "high": 1e30, "speedup": 1e-30, "sentence": ""}
    for operator in record["operators"]:
        operator["cpu"] |= {"time_s": 5e-324, "low_s": 1.0, "high_s": 0.0}
    record["groups"] = []
    senseless, sound = from_dict(record), from_json(inference_text)
    comparison = compare([("a", senseless), ("b", sound), ("c", senseless)])
    texts = [senseless.render(name) for name in ("text", "markdown", "csv", "sarif", "junit", "github")]
    texts += [document.render_text(comparison), document.render_markdown(comparison)]
    assert build.to_json(comparison)  # which is strict: NaN is no JSON
    for text in texts:
        assert not re.search(
            r"\b([Nn]a[Nn]|inf|Inf|Infinity)\b(?! is)|-0(\.0)?\b(?![.\d])|\d-\d+(?= [µnm]?s\b)", text
        )
    assert senseless.render("html")
    assert document.render(comparison)


def test_no_figure_of_a_run_is_negative_in_a_report_and_no_finding_costs_less_than_nothing(
    inference_text: str,
) -> None:
    record = json.loads(inference_text)
    record["environment"]["measurement"] = {"cpu": {"first_run_s": -1.5, "cores": -7, "left_bytes": -64}}
    page = from_dict(record).render("html")
    for name in ("first run", "cores", "left"):
        assert re.search(rf"<dt>CPU: {name}</dt>\s*<dd>–</dd>", page), name
    diagnostic = Diagnostic(message="m", fix="f", seconds=-1.0)
    rule = next(rule for rule in rules() if rule.code == "A101")
    assert evaluation._finding(rule, diagnostic, CheckSettings()).seconds is None


def test_a_module_path_of_nothing_but_dots_takes_no_longer_than_others(inference_text: str) -> None:
    record = json.loads(inference_text)
    for operator in record["operators"]:
        operator["module"] = "." * 900_000
    modules, _ = tree(from_dict(record))
    assert len(modules) <= 33  # the model and 32 levels
    assert sum(len(module.path) for module in modules) < 40_000


HOSTILE: list[Callable[[str], str]] = [
    lambda text: with_text(text, HEAD, HEAD + "[" * 50_000),
    lambda text: with_text(text, HEAD, HEAD + '"later": "\\ud800",'),
    lambda text: with_text(text, '"basis": "exact"', '"basis": {}'),
    lambda text: with_text(text, '"index": 0', '"index": -1'),
    lambda text: text[: len(text) // 2],
]


@pytest.mark.parametrize("damage", HOSTILE, ids=["deep", "half a character", "a type", "an index", "cut"])
@pytest.mark.parametrize("command", ["render", "check", "compare"])
def test_every_command_that_reads_a_record_exits_with_2_and_one_message(
    inference_text: str,
    damage: Callable[[str], str],
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "hostile.json"
    file.write_text(damage(inference_text), encoding="utf-8")
    arguments = [str(file)] * (2 if command == "compare" else 1)
    assert run_command_line([command, *arguments]) == 2
    said = capsys.readouterr().err
    assert "hostile.json" in said
    assert "Traceback" not in said
    assert len(said) < 1000
