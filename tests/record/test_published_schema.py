"""The JSON Schema in the tree is the record's own: valid, up to date, and real records keep to it."""

import json
from typing import Any

import jsonschema
import pytest

from analyzer.record.schema import FLEET_PATH, PATH, fleet_schema, schema, text


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return values


@pytest.fixture(scope="module")
def validator(published: dict[str, Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(published)


def test_the_published_schema_is_up_to_date(published: dict[str, Any]) -> None:
    assert published == json.loads(text(schema())), "python -m analyzer.record.schema writes it anew"


def test_the_published_schema_of_a_fleet_is_up_to_date_and_a_json_schema() -> None:
    found = json.loads(FLEET_PATH.read_text(encoding="utf-8"))
    assert found == json.loads(text(fleet_schema())), "python -m analyzer.record.schema writes it anew"
    jsonschema.Draft202012Validator.check_schema(found)


def test_the_published_schema_is_a_json_schema(published: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(published)


@pytest.mark.parametrize("kind", ["inference_text", "training_text"])
def test_a_real_record_keeps_to_the_published_schema(
    validator: jsonschema.Draft202012Validator, kind: str, request: pytest.FixtureRequest
) -> None:
    validator.validate(json.loads(request.getfixturevalue(kind)))


def test_keys_of_a_later_version_keep_to_the_published_schema(
    validator: jsonschema.Draft202012Validator, inference_text: str
) -> None:
    record = json.loads(inference_text)
    record["operators"][0]["of_a_later_version"] = record["of_a_later_version"] = {"a": 1}
    validator.validate(record)


@pytest.mark.parametrize(
    ("key", "value"),
    [("flops", -1), ("flops", 0.5), ("flops", "many"), ("basis", "guessed"), ("cpu", None), ("inputs", {})],
)
def test_what_is_no_operator_does_not_keep_to_the_published_schema(
    validator: jsonschema.Draft202012Validator, inference_text: str, key: str, value: object
) -> None:
    record = json.loads(inference_text)
    record["operators"][0][key] = value
    (error,) = validator.iter_errors(record)
    assert list(error.absolute_path)[:3] == ["operators", 0, key]


def test_what_may_be_unknown_is_null_in_one_type(published: dict[str, Any]) -> None:
    assert published["$defs"]["CpuTime"]["properties"]["time_s"]["type"] == ["number", "null"]
    assert "time_s" in published["$defs"]["CpuTime"]["required"]


def test_every_part_says_what_it_is_and_a_key_means_what_its_docstring_says() -> None:
    for content in (schema(), fleet_schema()):
        assert all(part["description"] for part in content["$defs"].values())
    parts = {name: part["properties"] for name, part in schema()["$defs"].items()}
    assert parts["CapacityResult"]["requests"]["description"].startswith("`inference`: a request")
    for name in ("prompt_tokens", "output_tokens"):
        assert parts["CapacityResult"][name]["description"] == "Of a request that generates, on average."
