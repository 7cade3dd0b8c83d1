"""A value that does not fit its type is one error with its place, the nearest right key and an example."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from analyzer.decoding import convert
from analyzer.errors import DeviceError


class Service(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="kebab"):
    max_rate: Annotated[float, msgspec.Meta(gt=0, examples=["500"])]
    kind: Literal["cpu", "gpu"] = "cpu"
    names: tuple[str, ...] = ()
    inner: Service | None = None


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({}, "it lacks the key `max-rate`", "Write max-rate = 500."),
        ({"max-rate": -1}, "max-rate: expected a number > 0.0", "Write max-rate = 500."),
        ({"max-rate": True}, "max-rate: expected a number, got true or false", "Write max-rate = 500."),
        ({"max_rate": 1}, "it has the unknown key `max_rate`", "Did you mean max-rate?"),
        ({"max-rate": 1, "x" * 900: 1}, "it has the unknown key", "It knows: max-rate, kind, names, inner."),
        ({"max-rate": 1, "kind": "x\ny"}, "kind: unknown value 'x\\ny'", "Choose among cpu, gpu."),
        (
            {"max-rate": 1, "names": [1]},
            "names[0]: expected a text, got a whole number",
            "Correct names there.",
        ),
        (
            {"max-rate": 1, "inner": {"max-rate": 1, "knid": 1}},
            "inner: it has the unknown key `knid`",
            "Did you mean kind?",
        ),
        ([], "expected a table, got a list", "Correct it there."),
    ],
)
def test_a_value_that_does_not_fit_is_one_error_with_its_place(values: Any, message: str, hint: str) -> None:
    with pytest.raises(DeviceError) as caught:
        convert(values, Service, "own.toml", error=DeviceError)
    assert caught.value.message.startswith(f"own.toml: {message}")
    assert len(caught.value.message) < 300
    assert caught.value.hint == hint
