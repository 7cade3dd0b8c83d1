"""Records and fleets as JSON and back, field by field from their dataclasses.

The types say what a file may hold, and msgspec holds it to them; ``consistency`` says which parts must agree.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from analyzer import __version__
from analyzer.decoding import described
from analyzer.errors import RecordError
from analyzer.record.analysis import SCHEMA_VERSION, Analysis
from analyzer.record.baseline import BASELINE_SCHEMA_VERSION, Baseline
from analyzer.record.consistency import faults_of_analysis, faults_of_fleet
from analyzer.record.fleet import FLEET_SCHEMA_VERSION, Fleet
from analyzer.text import json_escaped

FLEET_FILE = "fleet.json"
# A record of 100,000 operators has 206 MB, and 1.6 million lists and objects of some 240 bytes in memory.
_MOST_BYTES = 300_000_000
_MOST_PARTS = 5_000_000
_TOO_LARGE = "The largest that is read is of some 140,000 operators."
# 10,000 models on 70 devices take some 400 MB.
_MOST_FLEET_BYTES = 1_000_000_000
_DAMAGED = "It was cut short or edited by hand: write it anew."
# What each is called, where it comes from, a key that it alone has, and its newest schema.
_FOREIGN: Mapping[type, tuple[str, str, str, int]] = {
    Analysis: ("report of analyze", "A report is the .json file of analyze.", "operators", SCHEMA_VERSION),
    Fleet: ("fleet's record", "A fleet's record is its fleet.json.", "models", FLEET_SCHEMA_VERSION),
    Baseline: ("baseline", "Write it anew: --update-baseline --force.", "compares", BASELINE_SCHEMA_VERSION),
}
# Counts of the largest models times the largest batches stay below 1e20. A number of 400 digits would end in an
# OverflowError wherever it meets a float. Digits become 0, what stands before a number a colon.
_NUMBERS = bytes.maketrans(b"123456789,[- \n\t\r", b"0" * 9 + b":" * 7)
_LONG_NUMBER = b":" + b"0" * 32

# What is no JSON, no UTF-8, or nested beyond any record.
_SYNTAX = (msgspec.DecodeError, UnicodeError, RecursionError)

Record = TypeVar("Record", Analysis, Fleet, Baseline)


def to_json(analysis: Analysis) -> str:
    """Return the record as JSON; the same analysis gives the same text.

    Raises:
        ValueError: A figure is not finite, which JSON cannot say.
    """
    return _text(msgspec.to_builtins(analysis, enc_hook=_plain, str_keys=True))


def to_dict(analysis: Analysis) -> dict[str, Any]:
    """Return the record as plain dicts, lists, numbers and strings; keys in the order of the dataclasses."""
    return dict(json.loads(to_json(analysis)))


def fleet_to_json(fleet: Fleet) -> str:
    """Return the fleet as JSON; the same fleet gives the same text.

    A cell's keys without a value are left out: there are many cells, and null is most of what stands in them.
    """
    values = msgspec.to_builtins(fleet, enc_hook=_plain, str_keys=True)
    for model in values["models"]:
        model["cells"] = [
            {key: value for key, value in cell.items() if value is not None and value != ""}
            for cell in model["cells"]
        ]
    return _text(values)


def from_json(content: str | bytes, *, name: str = "the record") -> Analysis:
    """Return the analysis in a JSON text; keys that this version does not know are left aside.

    Raises:
        RecordError: It is no JSON, no record, of a newer schema, or damaged; the message names the place.
    """
    return _decoded(content, Analysis, name)


def from_dict(values: Mapping[str, Any], *, name: str = "the record") -> Analysis:
    """Return the analysis in plain values; see ``from_json``."""
    return from_json(json.dumps(values), name=name)


def load_report(path: str | os.PathLike[str]) -> Analysis:
    """Read a saved report.

    Raises:
        RecordError: There is no such file, or it holds no record that can be read.
    """
    return from_json(_content(path, _MOST_BYTES, _FOREIGN[Analysis][1]), name=str(path))


def load_fleet(path: str | os.PathLike[str]) -> Fleet:
    """Read a saved fleet: ``fleet.json``, or the folder that holds it.

    Raises:
        RecordError: There is none, or it cannot be read; the message says where.
    """
    file = os.path.join(path, FLEET_FILE) if os.path.isdir(path) else os.fspath(path)
    return _decoded(_content(file, _MOST_FLEET_BYTES, _FOREIGN[Fleet][1]), Fleet, file)


def load_baseline(path: str | os.PathLike[str]) -> Baseline:
    """Read a baseline.

    Raises:
        RecordError: It cannot be read; the message says where.
    """
    return _decoded(_content(path, 2**20, _FOREIGN[Baseline][1]), Baseline, f"the baseline {path}")


def holds_fleet(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file holds a fleet; False as well where it cannot be read, which its reader says."""
    try:
        head = _head(_content(path, _MOST_FLEET_BYTES, ""))
    except RecordError:
        return False
    return "models" in head and "operators" not in head


def _plain(value: Any) -> Any:
    """Return what msgspec does not know of as what it knows: a read-only mapping, a number of NumPy's."""
    if isinstance(value, Mapping):
        return dict(value)
    if getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"a record holds no {type(value).__name__}")


def _text(values: Any) -> str:
    # Not msgspec's own writer: it makes null of NaN, and fails on half a character, which file names may have.
    text = json_escaped(json.dumps(values, ensure_ascii=False, allow_nan=False))
    # Indented, so that records can be compared line by line; by one space, as they are deep.
    return msgspec.json.format(text, indent=1) + "\n"


def _content(path: str | os.PathLike[str], most_bytes: int, hint: str) -> bytes:
    try:
        # No more than that, whatever the file says of its size: a device has no end.
        with open(path, "rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError as error:
        raise RecordError(f"No such file: {path}.", hint=hint) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise RecordError(f"{path} cannot be read: {error}.", hint=hint) from error
    if len(content) > most_bytes:
        raise RecordError(f"{path} is larger than {most_bytes // 10**6} MB.", hint=_TOO_LARGE)
    return content


def _decoded(content: str | bytes, kind: type[Record], name: str) -> Record:
    content = content.encode("utf-8", "replace") if isinstance(content, str) else content
    if kind is Analysis and content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        raise RecordError(f"{name} holds more values than any record that is read.", hint=_TOO_LARGE)
    try:
        with _no_garbage_collection():
            record = msgspec.json.decode(content, type=kind)
    except _SYNTAX as error:
        raise _refusal(content, kind, name, error) from error
    at = content.translate(_NUMBERS).find(_LONG_NUMBER)
    if at >= 0:
        raise _damaged(name, f"byte {at + 1}", "the number has too many digits")
    faults: Iterable[tuple[str, str]] = ()
    if isinstance(record, Analysis):
        faults = faults_of_analysis(record)
    elif isinstance(record, Fleet):
        faults = faults_of_fleet(record)
    for place, reason in faults:
        raise _damaged(name, place, reason)
    return record


def _refusal(content: bytes, kind: type[Any], name: str, error: Exception) -> RecordError:
    """Return the error of a text that is no such record: no JSON, another file, a newer schema, damage."""
    try:
        # All of it: a value of a wrong type may stand before what is no JSON.
        msgspec.json.decode(content, type=msgspec.Raw)
    except _SYNTAX as fault:
        reason = str(fault).removeprefix("JSON is malformed: ")
        return RecordError(f"{name} is no valid JSON: {reason}.", hint="The file may be cut short.")
    head, (what, hint, own, newest) = _head(content), _FOREIGN[kind]
    version, tool = (msgspec.json.decode(head.get(key, b"null")) for key in ("schema_version", "tool"))
    made_by = tool.get("version") if isinstance(tool, dict) else None
    # ``type`` and not ``isinstance``: true is an ``int`` to Python.
    if type(version) is not int or version < 1 or own not in head:
        return RecordError(f"{name} is no {what}.", hint=hint)
    if version > newest:
        newer = f"analyze {made_by} or newer" if isinstance(made_by, str) else "a newer version of analyze"
        return RecordError(
            f"{name} has schema {version}; analyze {__version__} reads up to {newest}.",
            hint=f"Read it with {newer}.",
        )
    if isinstance(error, msgspec.ValidationError):
        return _damaged(name, *described(error))
    return _damaged(name, "", str(error))


def _head(content: bytes) -> dict[str, msgspec.Raw]:
    """Return the outermost keys, each with its JSON: what tells records apart where the whole is refused."""
    try:
        return msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except _SYNTAX:
        return {}


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Leave the garbage collector out: it would look through millions of new values, none of them garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _damaged(name: str, place: str, reason: str) -> RecordError:
    return RecordError(f"{name} is damaged at {place or 'the top'}: {reason}.", hint=_DAMAGED)
