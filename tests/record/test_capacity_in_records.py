"""Capacity plans and times of generation in a record: what they point at is there, what should rise does."""

import json
import re
from typing import Any

import pytest

from analyzer.errors import RecordError
from analyzer.record import from_dict, from_json, to_json
from analyzer.record.analysis import Analysis


def damaged(text: str, path: str, value: object) -> str:
    """What is said of the record with this value at a place of its capacity."""
    record = json.loads(text)
    exec(f"told{path} = value", {"told": record["capacity"], "value": value})
    with pytest.raises(RecordError) as caught:
        from_dict(record)
    assert caught.value.hint
    return caught.value.message


# Of the four options the last keeps no limit; three instances are planned of the first, one of which may fail.
@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("['best']", 4, "capacity.best: there is no option 4, only 4"),
        ("['best']", 3, "capacity.best: option 3 keeps no limit"),
        ("['best']", -1, "capacity.best: "),
        ("['options']", [], "capacity.best: there is no option 0, only 0"),
        ("['options'][0]['feasible']", False, "capacity.best: option 0 keeps no limit"),
        ("['options'][1]['count']", None, "capacity.options[1].count: expected more than the 1 that may fail"),
        ("['options'][0]['count']", 1, "capacity.options[0].count: expected more than the 1 that may fail"),
        ("['spare']", 3, "capacity.options[0].count: expected more than the 3 that may fail"),
        ("['options'][2]['highest_rate_per_s']", None, "capacity.options[2].highest_rate_per_s: expected that"),
        ("['instances'][0]['option']", 4, "capacity.instances[0].option: there is no option 4, only 4"),
        ("['instances'][1]['option']", 0, "capacity.instances: two are of one option"),
        ("['instances'][2]['limits'][1]['limit_s']", 0.02, "capacity.instances[2].limits: it does not ascend"),
        ("['instances'][0]['loads'][0]['rate_per_s']", 1e9, "capacity.instances[0].loads: it does not ascend"),
        ("['instances'][0]['service'][2]['batch']", 4, "capacity.instances[0].service: it does not ascend"),
        ("['traffic'][0]['rate_per_s']", 5000.0, "capacity.traffic: it does not ascend"),
    ],
)
def test_what_points_at_nothing_or_falls_is_named_with_its_place(
    capacity_text: str, path: str, value: object, said: str
) -> None:
    assert f" damaged at {said}" in damaged(capacity_text, path, value)


def test_a_plan_without_an_answer_and_without_instances_is_sound(capacity_text: str) -> None:
    record: Any = json.loads(capacity_text)
    record["capacity"] |= {"best": None, "instances": [], "traffic": [], "options": []}
    analysis = from_dict(record)
    assert from_json(to_json(analysis)) == analysis


@pytest.mark.parametrize(
    ("row", "key", "value", "said"),
    [
        (lambda told: told, "ttft_low_s", 1e9, "generation.ttft_s"),
        (lambda told: told, "request_low_s", 0.0, "generation.request_s"),
        (lambda told: told["devices"][1], "tpot_high_s", 0.0, "generation.devices[1].tpot_s"),
    ],
)
def test_a_time_of_generation_outside_its_own_interval_is_named_with_its_place(
    generation: Analysis, row: Any, key: str, value: float, said: str
) -> None:
    record = json.loads(to_json(generation))
    row(record["generation"])[key] = value
    with pytest.raises(RecordError, match=re.escape(f"{said}: it lies outside its own interval")):
        from_dict(record)
