"""The JSON Schema in the tree is the record's own: valid, up to date, and real records keep to it."""

import json
from typing import Any

import jsonschema
import pytest

from analyzer.record.key_words import KEY_WORDS
from analyzer.record.schema import FLEET_PATH, PATH, fleet_schema, schema, text


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return values


@pytest.fixture(scope="module")
def validator(published: dict[str, Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(published)


def test_the_published_schema_is_up_to_date(published: dict[str, Any]) -> None:
    assert published == json.loads(text()), "python -m analyzer.record.schema writes it anew"


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


def test_a_record_without_its_schema_version_does_not_keep_to_the_published_schema(
    validator: jsonschema.Draft202012Validator, inference_text: str
) -> None:
    record = json.loads(inference_text)
    del record["schema_version"]
    assert not validator.is_valid(record)


def test_what_may_be_unknown_is_null_in_one_type(published: dict[str, Any]) -> None:
    assert published["$defs"]["CpuTime"]["properties"]["time_s"]["type"] == ["number", "null"]
    assert "time_s" in published["$defs"]["CpuTime"]["required"]


def test_every_key_says_what_it_means_and_every_word_is_of_a_key() -> None:
    said = [
        key["description"]
        for content in (schema(), fleet_schema())
        for part in content["$defs"].values()
        for key in part["properties"].values()
    ]
    assert all(said)
    assert {f"{word[0].upper()}{word[1:]}" for word in KEY_WORDS.values()} <= set(said)


def test_a_key_means_what_its_docstring_says_else_what_it_means_everywhere() -> None:
    parts = {name: part["properties"] for name, part in schema()["$defs"].items()}
    # A clause of the first sentence that begins with the key, a sentence, an entry of the attributes; nothing.
    assert parts["TransferItem"]["direction"]["description"] == "`direction` is `to_gpu` or `to_cpu`"
    assert parts["Finding"]["certain"]["description"].startswith("`certain` is false where")
    assert parts["CapacityResult"]["requests"]["description"].startswith("`inference`: a request")
    assert parts["CpuTime"]["low_s"]["description"] == "Lower end of the 90 % interval"
