"""However a record is changed, it loads or is refused with a place; and what loads is rendered."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.errors import AnalyzerError, RecordError
from analyzer.record import from_json, to_json
from analyzer.record.analysis import Analysis

Path = tuple[str | int, ...]
T = TypeVar("T")

STRANGE: list[Any] = [
    None, True, -1, 0, 1, 7, 10**18, 10**31, -0.5, 0.0, 1e-300, 1e29, 1e308, "", "x", "cpu", "gpu", "hybrid",
    "measured", "mixed", "<script>", "\0", "int64", "If", "1" * 300, [], {}, [1], ["a"], [[]], [None], {"a": 1},
    {"cpu": None},
]  # fmt: skip


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


@cache
def alike(text: str) -> list[list[Path]]:
    """A record's places by what stands there, whichever entry of a list it is: each is as likely as others."""
    kinds: dict[Path, list[Path]] = {}
    for path in places(json.loads(text)):
        kinds.setdefault(tuple("*" if isinstance(key, int) else key for key in path), []).append(path)
    return list(kinds.values())


def choice(draw: st.DataObject, items: Sequence[T]) -> T:
    return items[draw.draw(st.integers(0, len(items) - 1))]


def mutate(draw: st.DataObject, record: Any, kinds: list[list[Path]]) -> None:
    """Changes one place: another value, none at all, one more, one less, the other way round."""
    *path, last = choice(draw, choice(draw, kinds))
    parent = record
    for key in path:
        parent = parent[key]
    old = parent[last]
    strange, factor = choice(draw, STRANGE), choice(draw, [-1, 0, 2, 1000])
    ways = [lambda: parent.__setitem__(last, strange), lambda: parent.__delitem__(last)]
    if isinstance(parent, list):
        ways += [lambda: parent.insert(0, old), parent.reverse]
    if isinstance(old, list) and old:
        ways += [old.pop]
    if isinstance(old, dict) and old:
        ways += [lambda: old.__setitem__("x", next(iter(old.values())))]
    if isinstance(old, (int, float)) and not isinstance(old, bool):
        ways += [lambda: parent.__setitem__(last, old * factor)] * 2
    choice(draw, ways)()


def mutated(draw: st.DataObject, text: str) -> Analysis | None:
    """The analysis that the changed record holds, None where it is refused as it should be."""
    record = json.loads(text)
    with suppress(KeyError, IndexError, TypeError):  # a second change's place may have gone with the first
        for _ in range(draw.draw(st.integers(1, 2))):
            mutate(draw, record, alike(text))
    hostile = json.dumps(record)
    try:
        return from_json(hostile)
    except RecordError as error:
        check(error)
        return None


def check(error: RecordError) -> None:
    """One line that names the place, and a hint."""
    assert error.hint
    assert "\n" not in error.message
    place = error.message.partition(" damaged at ")[2].partition(": ")[0]
    assert place or "no report" in error.message or "has schema" in error.message


seldom = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
often = settings(seldom, max_examples=120)


@pytest.mark.parametrize("kind", ["inference_text", "training_text", "capacity_text"])
@often
@given(draw=st.data())
def test_a_changed_record_loads_or_is_refused_with_a_place(
    kind: str, request: pytest.FixtureRequest, draw: st.DataObject
) -> None:
    analysis = mutated(draw, request.getfixturevalue(kind))
    if analysis is not None:
        assert from_json(to_json(analysis)) == analysis


@pytest.mark.parametrize("kind", ["inference_text", "training_text", "capacity_text"])
@pytest.mark.parametrize("form", ["text", "html"])
@seldom
@given(draw=st.data())
def test_a_changed_record_that_loads_is_rendered(
    kind: str, form: str, request: pytest.FixtureRequest, draw: st.DataObject
) -> None:
    analysis = mutated(draw, request.getfixturevalue(kind))
    if analysis is not None:
        with suppress(AnalyzerError):
            assert analysis.render(form)
