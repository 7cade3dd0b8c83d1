"""``fleet.toml``: models with their names, options, traffic, owners and tags.

[defaults] and each [[model]] hold options of the command that answers, as the command line spells them; what a
model says goes before what the defaults say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from analyzer.checks.settings import read_options
from analyzer.decoding import convert
from analyzer.errors import AnalyzerError, UsageError
from analyzer.fleet.entry import Entry
from analyzer.loading.model_reference import split_path
from analyzer.record.fleet import FleetQuestion, Today, Traffic
from analyzer.text import latency_limit
from analyzer.toml_file import read_toml

_LIMITS = ("p50", "p90", "p95", "p99", "mean")
# What a fleet decides for all of its models.
_NOT_BY_MODEL = (
    "run",
    "no-run",
    "output",
    "format",
    "open",
    "quiet",
    "verbose",
    "threads",
    "runs",
    "time-budget",
)


class _Traffic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    rate: Annotated[
        Annotated[int, Meta(gt=0, lt=10**12)] | Annotated[float, Meta(gt=0, lt=1e12)],
        Meta(examples=["50 (requests a second)"]),
    ]
    p50: str | float | None = None
    p90: str | float | None = None
    p95: str | float | None = None
    p99: str | float | None = None
    mean: str | float | None = None


class _Today(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    instance: Annotated[str, Meta(min_length=1, examples=['"g5.xlarge"'])]
    count: Annotated[int, Meta(ge=1, le=10**6, examples=["2"])] = 1


class _Defaults(msgspec.Struct, kw_only=True):
    options: Annotated[dict[str, Any], Meta(examples=['{ gpu = "l4" }'])] = {}
    question: FleetQuestion | None = None
    owner: str | None = None
    tags: Annotated[tuple[str, ...], Meta(examples=['["vision"]'])] | None = None


class _Model(_Defaults, kw_only=True):
    reference: Annotated[str, Meta(pattern=r"\S", examples=['"model.py"'])]
    name: str = ""
    inputs: Any = None
    traffic: Annotated[_Traffic, Meta(examples=['{ rate = 50, p99 = "80ms" }'])] | None = None
    today: Annotated[_Today | str, Meta(examples=['{ instance = "g5.xlarge", count = 2 }'])] | None = None


class _Manifest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    defaults: dict[str, Any] = {}
    model: list[dict[str, Any]] = []


def read_manifest(path: Path) -> tuple[Entry, ...]:
    """The models of a manifest; patterns in references are left as they are.

    Raises:
        UsageError: It cannot be read, or holds an unknown key or a value that cannot be right; says its line.
    """
    try:
        content = read_toml(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"{path} cannot be read: {reason}.", hint="A manifest is TOML, with [[model]] tables."
        ) from error
    return tuple(_Reader(path, lines).entries(content))


class _Reader:
    def __init__(self, path: Path, lines: list[str]) -> None:
        self._path = path
        self._lines = lines

    def entries(self, content: Mapping[str, Any]) -> Iterator[Entry]:
        whole = convert(content, _Manifest, self._place(0))
        if not whole.model:
            raise UsageError(
                f"{self._path} names no model.", hint='Write [[model]] and under it reference = "model.py".'
            )
        above = self._header("defaults", 0)
        defaults = convert(whole.defaults, _Defaults, self._place(above))
        options = self._options(whole.defaults, _Defaults, above)
        for number, table in enumerate(whole.model):
            start = self._header("model", number)
            model = convert(table, _Model, self._place(start))
            own = self._options(table, _Model, start)
            if model.inputs:
                inputs = {"input": model.inputs}
                own = {**own, **self._checked(inputs, start, _Model.__struct_fields__, key="inputs")}
            given = _Today(instance=model.today) if isinstance(model.today, str) else model.today
            yield Entry(
                reference=self._reference(model.reference),
                name=model.name,
                question=model.question or defaults.question,
                options=own,
                defaults=options,
                owner=model.owner or defaults.owner or "",
                tags=(defaults.tags or ()) if model.tags is None else model.tags,
                traffic=self._traffic(model.traffic, start) if model.traffic else None,
                today=Today(instance=given.instance, count=given.count) if given else None,
                where=f"{self._path}:{start + 1}",
            )

    def _reference(self, text: str) -> str:
        """As the command line would have it, started in the working folder: paths begin at the manifest."""
        path, name = split_path(text)
        if not path:
            return text  # package.module:Name
        whole = os.path.join(self._path.parent, path)
        return (os.path.normpath(whole) if os.path.isabs(path) else os.path.relpath(whole)) + name

    def _options(self, table: Mapping[str, Any], kind: type[_Defaults], start: int) -> Mapping[str, Any]:
        """Return the options of a table: under ``options``, or alongside the table's own keys."""
        own = kind.__struct_fields__
        alongside = {key: value for key, value in table.items() if key not in own}
        return self._checked({**alongside, **table.get("options", {})}, start, own)

    def _checked(
        self, table: Mapping[str, Any], start: int, own: tuple[str, ...], *, key: str = ""
    ) -> Mapping[str, Any]:
        for name, value in table.items():
            line = self._line(key or name, start)
            if name in _NOT_BY_MODEL:
                raise self._fault(start, name, "is for all models", f"give --{name} on the command line")
            try:
                location = f"{self._path}:{line + 1}:"
                read_options({name: value}, self._path, location, own, without=_NOT_BY_MODEL)
            except AnalyzerError as error:
                raise UsageError(error.message, hint=error.hint) from error
        return read_options(table, self._path, str(self._path))

    def _traffic(self, given: _Traffic, start: int) -> Traffic:
        limits = {name: value for name in _LIMITS if (value := getattr(given, name)) is not None}
        if len(limits) > 1:
            first, second, *_ = limits
            raise self._fault(start, second, f"stands beside {first}", "give one limit")
        for name, value in limits.items():
            return Traffic(
                rate=given.rate,
                limit_s=latency_limit(value, where=f"{self._place(start)(name)}: {name}"),
                percentile=0 if name == "mean" else int(name.removeprefix("p")),
            )
        return Traffic(rate=given.rate)

    def _place(self, start: int) -> Callable[[str], str]:
        """Return what names the file and the line of a key in the table that begins at a line."""
        return lambda key: f"{self._path}:{self._line(key, start) + 1}"

    def _fault(self, start: int, key: str, what: str, hint: str) -> UsageError:
        return UsageError(f"{self._path}:{self._line(key, start) + 1}: `{key}` {what}.", hint=hint)

    def _header(self, table: str, number: int) -> int:
        """The line, from 0, on which the table of this number begins; 0 where it is written another way."""
        header = re.compile(rf"\s*\[\[?\s*{table}\s*\]?\]")
        found = [index for index, line in enumerate(self._lines) if header.match(line)]
        return found[number] if number < len(found) else 0

    def _line(self, key: str, start: int) -> int:
        """The line, from 0, of a key in the table that begins at ``start``; that of the table where unseen."""
        word = re.compile(rf"(^|[\s{{,.\[])[\"']?{re.escape(key)}[\"']?\s*(=|\.|\])")
        for index in range(start, len(self._lines)):
            if index > start and re.match(r"\s*\[\[", self._lines[index]):
                break
            if word.search(self._lines[index]):
                return index
        return start
