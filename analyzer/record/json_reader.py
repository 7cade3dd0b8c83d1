"""The versioned JSON record -> Analysis, field by field by the dataclasses themselves; see ``json_writer``.

What a record may hold is said in three places: the dataclasses' types (decoded by msgspec), ``values`` (what
JSON itself lets through) and ``references`` (which parts point at which).
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from analyzer import __version__
from analyzer.errors import RecordError
from analyzer.record.analysis import SCHEMA_VERSION, Analysis
from analyzer.record.references import first_fault
from analyzer.record.sums import faults_of_sums
from analyzer.record.values import RepeatedKeyError, first_unfit, without_repeats

_DAMAGED = "The record is damaged, or edited by hand."
_CUT = "The file may be cut short."
_TOO_LARGE = "The largest that is read is of some 140,000 operators."
# Characters of a message: a hostile record's own texts stand in it.
_LONGEST = 200
# A record of 100,000 operators has 206 MB, 7.3 million commas, and 1.6 million lists and objects. A comma
# stands between two values of up to 60 bytes in memory, a brace before some 240: all limits together stay
# below 4 GB.
_MOST_BYTES = 300_000_000
_MOST_VALUES = 16_000_000
_MOST_PARTS = 5_000_000


def from_dict(values: Mapping[str, Any], *, name: str = "the record") -> Analysis:
    """The analysis that a record holds; keys that this version does not know are left aside.

    Raises:
        RecordError: It is no record, of a newer schema, or damaged; the message names the place.
    """
    # In this order: a newer schema is not called damaged, and msgspec never meets what no record holds.
    _check_version(values, name)
    unfit = first_unfit(values)
    if unfit is not None:
        raise _damaged(name, unfit.place, unfit.reason)
    try:
        # From what Python's own reader made, as msgspec's takes the last of repeated keys. Strict, the default:
        # "1" and true are not taken for 1.
        analysis = msgspec.convert(dict(values), Analysis)
    except msgspec.ValidationError as error:
        # "Expected `int`, got `str` - at `$.operators[3].flops`": the message alone has the place. Of a key it
        # says "at `key` in `$.sweep[0].plans`".
        reason, _, place = str(error).replace(" - at `key` in `$", " - at `$").partition(" - at `$")
        raise _damaged(name, place.strip("`."), reason[:1].lower() + reason[1:]) from error
    fault = first_fault(analysis) or next(faults_of_sums(analysis), None)
    if fault is not None:
        raise _damaged(name, fault.place, fault.reason)
    return analysis


def from_json(text: str, *, name: str = "the record") -> Analysis:
    """The analysis that a JSON text holds.

    Raises:
        RecordError: It is no JSON or no record.
    """
    # Counted in the text, before any of it becomes a value.
    if text.count(",") > _MOST_VALUES or text.count("{") + text.count("[") > _MOST_PARTS:
        raise RecordError(f"{name} holds more values than any record that is read.", hint=_TOO_LARGE)
    with _no_garbage_collection():
        return _from_json(text, name)


def _from_json(text: str, name: str) -> Analysis:
    try:
        values = json.loads(text, object_pairs_hook=without_repeats)
    except RepeatedKeyError as error:
        raise _damaged(name, repr(error.key), "the key stands twice in one object") from error
    except json.JSONDecodeError as error:
        raise RecordError(f"{name} is no valid JSON: {error}.", hint=_CUT) from error
    except ValueError as error:  # over 4,300 digits, see CVE-2020-10735
        raise RecordError(f"{name} holds a number with too many digits.", hint=_DAMAGED) from error
    except RecursionError as error:
        raise RecordError(f"{name} is nested too deeply to be a record.", hint=_DAMAGED) from error
    return from_dict(values, name=name)


def load_report(path: str | os.PathLike[str]) -> Analysis:
    """Reads a saved report.

    Raises:
        RecordError: There is no such file, or it holds no record that can be read.
    """
    try:
        # No more than that, whatever the file says of its size: a device has no end.
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise RecordError(f"{path} is larger than {_MOST_BYTES // 10**6} MB.", hint=_TOO_LARGE)
        text = content.decode("utf-8")
    except FileNotFoundError as error:
        raise RecordError(f"No such file: {path}.") from error
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path with a null character
        raise RecordError(f"{path} cannot be read: {error}.") from error
    return from_json(text, name=str(path))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Leaves the garbage collector out: it would look through millions of new values, none of them garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_version(values: object, name: str) -> None:
    """Says what is no record, or one of a newer schema, before its parts are looked at."""
    # ``type`` and not ``isinstance``: true is an ``int`` to Python.
    version = values.get("schema_version") if isinstance(values, Mapping) else None
    if type(version) is not int or version < 1 or not isinstance(values, Mapping) or "operators" not in values:
        raise RecordError(
            f"{name} is no report of analyze.", hint="A report is the .json file that analyze writes."
        )
    if version > SCHEMA_VERSION:
        tool = values.get("tool")
        made_by = tool.get("version") if isinstance(tool, Mapping) else None
        newer = f"analyze {made_by} or newer" if isinstance(made_by, str) else "a newer version of analyze"
        raise RecordError(
            f"{name} has schema {version}; analyze {__version__} reads up to {SCHEMA_VERSION}.",
            hint=f"Read it with {newer}.",
        )


def _damaged(name: str, place: str, reason: str) -> RecordError:
    """One line, however long and strange what the record holds there."""
    fault = " ".join(f"{place or 'the top'}: {reason}".split())
    fault = fault if len(fault) <= _LONGEST else f"{fault[:_LONGEST]}..."
    return RecordError(f"{name} is damaged at {fault}.", hint=_DAMAGED)
