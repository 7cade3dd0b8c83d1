"""Records that nobody should write: a seed to the bytes of a ``.json`` file, the same everywhere."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import seed_models
from mutation import Draw, scrambled, without_lone_bytes

from analyzer.record.analysis import Analysis

# A text in the tree that stands for JSON which Python's own writer does not write.
RAW = (
    ("@@NAN@@", "NaN"), ("@@INFINITE@@", "-Infinity"), ("@@HUGE@@", "1e999"), ("@@DIGITS@@", "9" * 5000),
    ("@@DEEP@@", "[" * 50_000 + "]" * 50_000), ("@@DEEPER@@", '{"a":' * 20_000 + "0" + "}" * 20_000),
    ("@@NESTED@@", "[" * 120 + "]" * 120), ("@@HALF@@", '"\\ud800"'), ("@@NUL@@", '"a\\u0000b"'),
    ("@@TINY@@", "1e-400"), ("@@MINUS@@", "-0"), ("@@TWICE@@", '{"a": 1, "a": 2}'), ("@@OPEN@@", '"cut short'),
    ("@@LONG@@", "[" + "0," * 50_000 + "0]"),
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 7, 99, 2**31, 2**53, 2**63, 10**18, 10**30, 10**31, -0.5, 0.0, 0.5, 1e-300,
    1e29, 1e30, 1e308,
    "cpu", "gpu", "hybrid", "either", "measured", "predicted", "mixed", "exact", "unknown", "cuda", "int64",
    "string",
    "If", "Loop", "seq(tensor(float))", "1" * 300, [], {}, [1], ["a"], [[]], [None], {"a": 1}, {"cpu": None},
    [0] * 1000, {"": ""}, "cost", "A101", "error", "20",
)  # fmt: skip


def record_case(seed: int) -> bytes:
    """The bytes of a mutated record."""
    draw = Draw(seed, 2)
    text = draw.among(base_records())
    record = json.loads(text)
    for _ in range(draw.among((1, 1, 1, 1, 2, 4))):  # a reader stops at the first that it refuses
        try:
            change(record, alike(text), draw)
        except (KeyError, IndexError, TypeError, AttributeError):  # a place that went with an earlier change
            continue
    written = json.dumps(record, ensure_ascii=draw.chance(0.5), indent=draw.among((None, 1)))
    for name, raw in RAW:
        written = written.replace(f'"{name}"', raw)
    content = without_lone_bytes(written.encode("utf-8", "surrogatepass"))
    return scrambled(content, draw) if draw.chance(0.1) else content


@cache
def base_records() -> tuple[str, ...]:
    """Records of small models, on devices of the catalogue: nothing of them depends on the machine."""
    from analyzer import analyze, plan_capacity

    questions: tuple[tuple[Any, dict[str, Any]], ...] = (
        (seed_models.perceptron, {"batch": 8, "gpu": "l4,t4"}),
        (seed_models.convolutions, {"gpu": "a100"}),
        (seed_models.control_flow, {"gpu": "l4"}),
        (seed_models.quantised, {"gpu": "none"}),
        (
            seed_models.transformer,
            {"batch": 4, "gpu": "h100", "objective": "cost", "slo": "20ms", "pin": "Gelu=cpu"},
        ),
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for build, options in questions:
            onnx.save(build(), path)
            found.append(analyze(path, run=False, cpu="epyc-9654", **options))
        asked: Any = {"run": False, "cpu": "epyc-9654", "gpu": "l4", "rate": 20_000, "p99": "200us", "spare": 1}
        found.append(plan_capacity(path, headroom=0.2, **asked))
    return tuple(map(_the_same_everywhere, found))


def _the_same_everywhere(analysis: Analysis) -> str:
    record = analysis.to_dict()
    record["environment"] = {"versions": {"onnx": "1"}, "platform": "x", "date": "2026-01-01"}
    record["model"]["source"] = "model.onnx"
    return json.dumps(record)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value in a record."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


@cache
def alike(text: str) -> list[list[tuple[str | int, ...]]]:
    """A record's places by what stands there, whichever entry of a list it is: each is as likely as others."""
    kinds: dict[tuple[str | int, ...], list[tuple[str | int, ...]]] = {}
    for path in places(json.loads(text)):
        kinds.setdefault(tuple("*" if isinstance(key, int) else key for key in path), []).append(path)
    return list(kinds.values())


def change(record: Any, kinds: list[list[tuple[str | int, ...]]], draw: Draw) -> None:
    """Another value at one place, none, one more, one less, the other way round, or a key that nobody knows."""
    *path, last = draw.among(draw.among(kinds))
    parent = record
    for key in path:
        parent = parent[key]
    old = parent[last]
    way = draw.below(12)
    # Half of all keep the type and the sign: what a reader refuses never comes to the reports.
    if draw.chance(0.5) and isinstance(old, (str, int, float)):
        parent[last] = likely(old, draw)
    elif way <= 3:
        parent[last] = strange(old, draw)
    elif way == 4:
        del parent[last]
    elif way == 5 and isinstance(old, (int, float)) and not isinstance(old, bool):
        parent[last] = old * draw.among((-1, 0, 2, 1000, 10**9))
    elif way == 6 and isinstance(old, str):
        parent[last] = draw.text() if draw.chance(0.7) else old + draw.text()
    elif way == 7 and isinstance(parent, list):
        parent.insert(0, old)
    elif way == 8 and isinstance(old, list) and old:
        old.pop()
    elif way == 9 and isinstance(old, (list, dict)):
        old.reverse() if isinstance(old, list) else old.update({draw.text(): next(iter(old.values()), 0)})
    elif way == 10 and isinstance(parent, dict):
        parent[draw.text()] = strange(old, draw)
    else:
        parent[last] = draw.among(VALUES)


def likely(old: Any, draw: Draw) -> Any:
    """A value that a record could hold."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, str):
        return draw.text()
    if isinstance(old, int):
        return abs(draw.integer())
    return draw.among((0.0, 1e-300, 1e-30, 1e-9, 1.0, 1e9, 1e29, 1e30, 5e-324, old * 1000, old / 1000))


def strange(old: Any, draw: Draw) -> Any:
    """A value of the same type at the end of it, or of another type, or none that JSON has."""
    if draw.chance(0.1):
        return draw.among(RAW)[0]
    if isinstance(old, str) and draw.chance(0.7):
        return draw.text()
    if isinstance(old, int) and draw.chance(0.7):
        return draw.integer()
    if isinstance(old, list) and draw.chance(0.5):
        return old * draw.among((0, 2, 50))
    return draw.among(VALUES)
