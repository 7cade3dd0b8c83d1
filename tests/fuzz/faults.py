"""What no answer may be: the reasons for which a case fails, each short and alike for alike failures."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation import CANARY

SECONDS, BYTES = 60.0, 4_000_000_000


@dataclass(kw_only=True)
class Outcome:
    """What one command came to.

    Attributes:
        arguments: The command.
        encoding: Of what it prints.
        status: Its exit status; -N where signal N ended the process, None where the parent ended it.
        ended: Why the parent ended it: ``time`` or ``memory``.
        seconds, peak: How long it took and how much memory it and its children held.
        stdout, stderr: What it printed.
        written: Files that it made, by name.
        changed: Files of the case that are no longer as they were.
        outside: What it made beside the case's folder; ``a-browser`` where it opened one.
        left: What stayed in the temporary folder.
    """

    arguments: tuple[str, ...]
    encoding: str = "utf-8"
    status: int | None
    ended: str = ""
    seconds: float = 0.0
    peak: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    written: Mapping[str, bytes] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def faults(outcome: Outcome, *, seconds: float = SECONDS, memory: int = BYTES) -> list[str]:
    """Why this outcome is none that the program may have; empty where it may."""
    found = [*of_the_end(outcome, seconds, memory)]
    if outcome.status == 2 and b"error:" not in outcome.stderr:
        found.append("status 2 without an error message")
    found += [f"changed the file {name}" for name in outcome.changed]
    found += [f"made {name} outside the folder" for name in outcome.outside]
    found += [f"left {re.sub('[0-9a-z_]{8}$', '*', name)} in the temporary folder" for name in outcome.left]
    found += of_the_text(outcome)
    if outcome.status in (0, 1):
        found += of_the_records(outcome)
    return list(dict.fromkeys(found))


def of_the_end(outcome: Outcome, seconds: float, memory: int) -> Iterator[str]:
    """How it ended: in time, in memory, with a status of its own."""
    errors = outcome.stderr.decode("utf-8", "replace")
    if outcome.ended == "time" or outcome.seconds > seconds:
        yield f"hangs: {place(errors)}"
    if outcome.ended == "memory" or outcome.peak > memory:
        yield f"memory: {place(errors)}"
    if outcome.status is not None and outcome.status < 0:
        yield f"signal {signal.Signals(-outcome.status).name}: {place(errors)}"
    elif outcome.status is not None and outcome.status not in (0, 1, 2):
        yield f"status {outcome.status}: {raised(errors)}"
    elif outcome.status is not None and "Traceback (most recent call last)" in errors:
        yield f"traceback with status {outcome.status}: {raised(errors)}"


# Python's tracebacks name the innermost frame last, faulthandler's dumps first.
_FRAME = re.compile(r'File "[^"]*?/(analyzer/[^"]+\.py)", line (\d+),? in (\S+)')


def place(errors: str) -> str:
    """The innermost frame of the program in a dump, or where there is none the first frame of all."""
    frame = _FRAME.search(errors)
    if frame is None:
        anywhere = re.search(r'File "([^"]+)", line (\d+) in (\S+)', errors)
        return f"{Path(anywhere[1]).name}:{anywhere[2]} {anywhere[3]}" if anywhere else "nowhere known"
    return f"{frame[1]}:{frame[2]} {frame[3]}"


def raised(errors: str) -> str:
    """The exception's type and the innermost frame of the program in a traceback."""
    frames = _FRAME.findall(errors)
    kinds = re.findall(
        r"^([A-Za-z_][\w.]*(?:Error|Exception|Fail|Warning|Interrupt|Exit)\w*)\b(?!.*File)", errors, re.M
    )
    where = "{}:{} {}".format(*frames[-1]) if frames else "nowhere known"
    return f"{kinds[-1].rpartition('.')[2] if kinds else 'unknown'} at {where}"


# A tab and a line's end are all that drives a terminal and may be there.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Our own commands name a file and a title, as no hostile text here does. GitHub's runner takes the older form,
# ##[...], anywhere in a line (src/Runner.Common/ActionCommand.cs in actions/runner: TryParseV2, TryParse).
_OWN_COMMAND = re.compile(r"::(error|warning|notice) file=[^:,]*(,line=\d+)?,title=[^:,]*::")


_FOR_PROGRAMS = frozenset(("json", "csv", "sarif", "junit", "html"))


def of_the_text(outcome: Outcome) -> list[str]:
    """Control characters and workflow commands in what is printed or written."""
    if outcome.status not in (0, 1, 2):  # a traceback holds what it holds
        return []
    found = []
    is_data = not _FOR_PROGRAMS.isdisjoint(outcome.arguments)
    for name, content in {"standard output": outcome.stdout, "standard error": outcome.stderr}.items():
        lines = re.split("\r\n|\r|\n", content.decode(outcome.encoding, "replace"))
        printed = name == "standard output"
        if any(is_foreign_command(line, ours=printed, data=printed and is_data) for line in lines):
            found.append(f"a workflow command on {name}")
    texts = {"standard output": outcome.stdout, "standard error": outcome.stderr, **outcome.written}
    for name, content in texts.items():
        encoding = outcome.encoding if name.startswith("standard") else "utf-8"
        text = content.decode(encoding, "replace").replace("\r\n", "\n")
        if control := _CONTROL.search(text):
            found.append(f"a raw {control[0]!r} on {shown(name)}")
    return found


def shown(name: str) -> str:
    """An output by its kind."""
    return name if name.startswith("standard") else f"a {Path(name).suffix} file"


def is_foreign_command(line: str, *, ours: bool, data: bool) -> bool:
    """Whether the runner of GitHub Actions would take a line for a command that is none of ours.

    ``ours`` may print commands of its own, which settings can ask for too; ``data`` is for programs, and holds
    names as they are.
    """
    line = line.lstrip()
    if line.startswith("::"):
        return not (ours and _OWN_COMMAND.match(line))
    return not data and f"##[error]{CANARY}" in line


def of_the_records(outcome: Outcome) -> list[str]:
    """What is wrong with the figures of each record that was printed or written."""
    # Click takes a stream of ASCII for a locale that was forgotten, and writes UTF-8 to it.
    printed_as = "utf-8" if outcome.encoding == "ascii" else outcome.encoding
    texts = [content for name, content in outcome.written.items() if name.endswith(".json")]
    if "json" in outcome.arguments and "--output" not in outcome.arguments:
        texts.append(outcome.stdout)
    found = []
    for text in texts:
        try:
            record = json.loads(text.decode(printed_as if text is outcome.stdout else "utf-8"))
            json.dumps(record, allow_nan=False)
        except ValueError as error:
            found.append(f"no valid JSON: {str(error)[:40]}")
            continue
        if isinstance(record, dict) and "operators" in record:
            found += of_the_figures(record)
    return found


# Facts of the model or the machine, not figures of ours; what is asked may be negative.
_NO_FIGURES = ("attributes", "conventions", "environment", "invocation", "kept")


def of_the_figures(record: Any) -> list[str]:
    """Negative, infinite and impossible figures of a record."""
    found = [f"{name} is {kind}" for name, kind in impossible(record)]
    found += sums(record)
    found += intervals(record)
    return found


def impossible(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Names of figures that are negative or not finite, by what they are."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _NO_FIGURES:
                yield from impossible(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            yield from impossible(item, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            yield path, "not finite"
        elif value < 0:
            yield path, "negative"


SUMMED = ("flops", "macs", "bytes_read", "bytes_written")


def near(a: float, b: float) -> bool:
    """Equal but for rounding."""
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


def sums(record: Any) -> Iterator[str]:
    """Totals that are no sums of their parts."""
    operators, groups = record["operators"], record["groups"]
    for key in SUMMED:
        if record["totals"][key] != sum(item[key] or 0 for item in operators):
            yield f"totals.{key} is no sum"
    if record["totals"]["operators"] != len(operators):
        yield "totals.operators is no count"
    for session, side in (("cpu", "cpu"), ("cuda", "gpu")):
        of_session = [group for group in groups if group["session"] == session]
        members = [index for group in of_session for index in group["members"]]
        if len(set(members)) != len(members):
            yield f"an operator is in two groups of {session}"
        if not of_session or any(group["time_s"] is None for group in of_session):
            continue
        whole = sum(group["time_s"] for group in of_session)
        parts = sum((item[side] or {}).get("time_s") or 0 for item in operators)
        if not near(whole, parts):
            yield f"operators' times on {side} are not those of its groups"
    for plan in record["plans"]:
        copies = plan["transfers"]
        if copies["items"] and copies["bytes"] != sum(item["bytes"] for item in copies["items"]):
            yield "transfers.bytes is no sum"


def intervals(record: Any) -> Iterator[str]:
    """Figures outside their own interval."""
    for name in ("plans", "groups", "costs"):
        for item in record[name]:
            time = item.get("latency_s", item.get("time_s"))
            if time is not None and item["low_s"] is not None and not item["low_s"] <= time <= item["high_s"]:
                yield f"a time of {name} is outside its interval"
    latency = {plan["name"]: plan["latency_s"] for plan in record["plans"]}
    pinned = "pin" in json.dumps(record.get("invocation"))
    if "hybrid" in latency and not pinned:
        fitting = [plan["latency_s"] for plan in record["plans"] if plan["fits"]]
        if fitting and latency["hybrid"] > min(fitting) * (1 + 1e-9):
            yield "the best plan is slower than another"
