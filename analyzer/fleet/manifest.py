"""``fleet.toml``: models with their names, options, traffic, owners and tags.

[defaults] and each [[model]] hold options of the command that answers, as the command line spells them; what a
model says goes before what the defaults say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from analyzer.checks.settings import read_options
from analyzer.errors import AnalyzerError, UsageError
from analyzer.fleet.entry import Entry
from analyzer.loading.model_reference import split_path
from analyzer.record.fleet import FleetQuestion, Today, Traffic
from analyzer.text import latency_limit, nearest
from analyzer.toml_file import read_toml

_TABLES = ("defaults", "model")
_OWN_KEYS = ("name", "reference", "inputs", "batch", "question", "options", "traffic", "today", "owner", "tags")
_DEFAULT_KEYS = ("options", "batch", "owner", "tags", "question")
_LIMITS = ("p50", "p90", "p95", "p99", "mean")
_TRAFFIC_KEYS = ("rate", *_LIMITS)
_TODAY_KEYS = ("instance", "count")
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
        self._known(content, _TABLES, "", 0)
        defaults, models = content.get("defaults", {}), content.get("model", [])
        if not isinstance(defaults, dict) or not isinstance(models, list) or not models:
            raise UsageError(
                f"{self._path} names no model.", hint='Write [[model]] and under it reference = "model.py".'
            )
        start = self._header("defaults", 0)
        options = self._options(defaults, _DEFAULT_KEYS, start)
        for number, model in enumerate(models):
            start = self._header("model", number)
            if not isinstance(model, dict):
                raise self._fault(start, "model", "must be a table", "write [[model]]")
            yield self._entry(model, defaults, options, start)

    def _entry(
        self, model: Mapping[str, Any], defaults: Mapping[str, Any], options: Mapping[str, Any], start: int
    ) -> Entry:
        reference = model.get("reference")
        if not isinstance(reference, str) or not reference.strip():
            raise self._fault(start, "reference", "is missing", 'for example reference = "model.py"')
        inputs = model.get("inputs", [])
        above = self._header("defaults", 0)
        own = self._options(model, _OWN_KEYS, start)
        if inputs:
            own = {**own, **self._checked({"input": inputs}, start, _OWN_KEYS, key="inputs")}
        return Entry(
            reference=self._reference(reference),
            name=self._text(model, "name", start),
            question=self._question(model["question"], start)
            if "question" in model
            else self._question(defaults.get("question"), above),
            options=own,
            defaults=options,
            owner=self._text(model, "owner", start) or self._text(defaults, "owner", above),
            tags=self._tags(model, start) if "tags" in model else self._tags(defaults, above),
            traffic=self._traffic(model.get("traffic"), start),
            today=self._today(model.get("today"), start),
            where=f"{self._path}:{start + 1}",
        )

    def _reference(self, text: str) -> str:
        """As the command line would have it, started in the working folder: paths begin at the manifest."""
        path, name = split_path(text)
        if not path:
            return text  # package.module:Name
        whole = os.path.join(self._path.parent, path)
        return (os.path.normpath(whole) if os.path.isabs(path) else os.path.relpath(whole)) + name

    def _options(self, table: Mapping[str, Any], own: tuple[str, ...], start: int) -> Mapping[str, Any]:
        """Options of a table: under ``options`` or beside the table's own keys."""
        inner = table.get("options", {})
        if not isinstance(inner, dict):
            raise self._fault(start, "options", "must be a table", 'write options = { gpu = "l4" }')
        beside = {key: value for key, value in table.items() if key == "batch" or key not in own}
        return self._checked({**beside, **inner}, start, own)

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

    def _question(self, value: object, start: int) -> FleetQuestion | None:
        if value is None:
            return None
        for question in get_args(FleetQuestion):
            if value == question:
                return question  # type: ignore[no-any-return]
        raise self._fault(start, "question", f"is {value!r}", f"one of {', '.join(get_args(FleetQuestion))}")

    def _text(self, table: Mapping[str, Any], key: str, start: int) -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            raise self._fault(start, key, "must be a text", f'write {key} = "..."')
        return value

    def _tags(self, table: Mapping[str, Any], start: int) -> tuple[str, ...]:
        value = table.get("tags", [])
        if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
            raise self._fault(start, "tags", "must be a list of texts", 'write tags = ["vision"]')
        return tuple(value)

    def _traffic(self, value: object, start: int) -> Traffic | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._fault(
                start, "traffic", "must be a table", 'write traffic = { rate = 50, p99 = "80ms" }'
            )
        self._known(value, _TRAFFIC_KEYS, " traffic", start)
        limits = [key for key in _LIMITS if key in value]
        if len(limits) > 1:
            raise self._fault(start, limits[1], f"stands beside {limits[0]}", "give one limit")
        rate = value.get("rate")
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < 1e12:
            raise self._fault(start, "rate", "must be requests a second, above 0", "write rate = 50")
        if not limits:
            return Traffic(rate=rate)
        line = self._line(limits[0], start) + 1
        limit_s = latency_limit(value[limits[0]], where=f"{self._path}:{line}: {limits[0]}")
        return Traffic(
            rate=rate,
            limit_s=limit_s,
            percentile=0 if limits[0] == "mean" else int(limits[0].removeprefix("p")),
        )

    def _today(self, value: object, start: int) -> Today | None:
        if value is None:
            return None
        if isinstance(value, str):
            return Today(instance=value)
        if not isinstance(value, dict):
            raise self._fault(
                start, "today", "must be a table", 'write today = { instance = "g5.xlarge", count = 2 }'
            )
        self._known(value, _TODAY_KEYS, " today", start)
        count = value.get("count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 10**6:
            raise self._fault(start, "count", "must be a number of instances", "write count = 2")
        instance = self._text(value, "instance", start)
        if not instance:
            raise self._fault(start, "instance", "is missing", 'write instance = "g5.xlarge"')
        return Today(instance=instance, count=count)

    def _known(self, table: Mapping[str, Any], keys: tuple[str, ...], what: str, start: int) -> None:
        for key in table:
            if key not in keys:
                meant = nearest(key, keys)
                hint = f"did you mean `{meant}`?" if meant else f"it knows: {', '.join(keys)}"
                line = self._line(key, start) + 1
                raise UsageError(f"{self._path}:{line}:{what} has an unknown key `{key}`.", hint=hint)

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
