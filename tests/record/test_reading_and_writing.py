"""What is written is read as the same analysis, and written again as the same bytes."""

import dataclasses
import json
import subprocess
import sys
from types import MappingProxyType

import numpy as np
import pytest

from analyzer.record import from_dict, from_json, to_dict, to_json
from analyzer.record.analysis import Analysis

KINDS = ["inference", "training"]


@pytest.fixture(params=KINDS)
def analysis(request: pytest.FixtureRequest) -> Analysis:
    found: Analysis = request.getfixturevalue(request.param)
    return found


def test_a_record_is_read_as_the_analysis_that_was_written(analysis: Analysis) -> None:
    assert from_json(to_json(analysis)) == from_dict(to_dict(analysis))


def test_a_record_that_is_read_is_written_again_with_the_same_bytes(analysis: Analysis) -> None:
    assert to_json(from_json(to_json(analysis))) == to_json(analysis)


def test_a_whole_number_stays_whole_where_fractions_may_stand_too(inference_text: str) -> None:
    record = json.loads(inference_text)
    record["plans"][0] |= {"latency_s": 3, "low_s": 2.5, "high_s": 3.5}
    assert '"latency_s": 3,' in to_json(from_dict(record))


def test_the_record_is_the_dataclasses_own_fields_with_version_and_tool_first(analysis: Analysis) -> None:
    read = from_json(to_json(analysis))
    fields = dataclasses.asdict(read)
    assert list(fields)[:2] == ["schema_version", "tool"]
    assert to_json(read) == json.dumps(fields, indent=1, ensure_ascii=False) + "\n"


def test_read_only_mappings_and_numpy_numbers_are_written_as_plain_ones(inference: Analysis) -> None:
    changed = dataclasses.replace(
        inference, conventions=MappingProxyType({"a": np.float64(0.1), "b": (1, "é")})
    )
    assert to_dict(changed)["conventions"] == {"a": 0.1, "b": [1, "é"]}
    assert '"a": 0.1,' in to_json(changed)


def test_what_no_record_holds_is_not_written(inference: Analysis) -> None:
    with pytest.raises(TypeError, match="ndarray"):
        to_json(dataclasses.replace(inference, conventions={"a": np.zeros(2)}))
    with pytest.raises(ValueError, match="JSON"):
        to_json(dataclasses.replace(inference, conventions={"a": float("nan")}))


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_this_version_does_not_know_are_left_aside(kind: str, request: pytest.FixtureRequest) -> None:
    text = request.getfixturevalue(f"{kind}_text")
    record = json.loads(text)
    record["later"] = {"deep": [1, {"deeper": None}]}
    record["operators"][0]["cpu"]["later"] = "x"
    assert to_json(from_dict(record)) == text


@pytest.mark.parametrize("module", ["msgspec", "jsonschema", "analyzer.record.analysis"])
def test_help_imports_nothing_of_the_record(module: str) -> None:
    code = (
        "import sys\nfrom analyzer.cli import run_command_line\nrun_command_line(['--help'])\n"
        f"sys.exit({module!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
