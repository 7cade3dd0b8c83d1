"""What a report says of a capacity plan of a model that generates, in every format."""

from typing import Any

import capacity_records as records
import report_factory as factory

from analyzer.record import from_json, to_json
from analyzer.record.capacity import CapacityResult
from analyzer.report import capacity_words


def figures(told: CapacityResult) -> dict[str, Any]:
    return {figure.name: figure for figure in capacity_words.figures(told)}


def test_the_records_of_these_tests_are_kept_when_written_and_read() -> None:
    analysis = factory.generation_capacity()
    assert from_json(to_json(analysis)).capacity == analysis.capacity
    for option in records.generation().options[:2]:
        # 5 x 1.2 requests/s over 4 and 10, and a spare.
        assert (option.count, option.usd_per_month) in ((3, 3 * 730 * 1.0), (2, 2 * 730 * 2.5))


def test_an_instance_that_keeps_the_limits_at_one_width_is_none_that_keeps_none() -> None:
    # Of four rows three instances, of which the CPU's alone keeps none.
    assert capacity_words.refused(records.generation()).startswith("1 of 3 instance types")
    both = records.generation().options[1:3]
    assert capacity_words.refused(records.generation(options=both)) == ""
