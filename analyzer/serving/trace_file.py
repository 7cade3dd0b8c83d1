"""A recorded trace of requests, read from a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from analyzer.arrays import Floats
from analyzer.errors import UsageError
from analyzer.serving.arrivals import mean_rate_per_s
from analyzer.serving.continuous import Conversations

# Of a stranger's file: 100 MB of times are more than a day of a large service.
_MOST_REQUESTS = 10_000_000


def read_trace(path: Path, *, where: str = "--arrivals") -> Floats:
    """Seconds of each request since the start, from the first column of a CSV file; a header line is allowed.

    Raises:
        UsageError: No such file, fewer than two requests, what is no number, or times that fall.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            arrivals_s = np.array(_times(_rows(file), f"{where} {path}"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            f"{where} {path}: cannot be read ({error}).", hint="A CSV file, or `poisson`."
        ) from error
    if len(arrivals_s) < 2:
        rows = "no request" if not len(arrivals_s) else "one request"
        raise UsageError(
            f"{where} {path}: the trace has {rows}, and no rate follows from that.",
            hint="One row for each request, its seconds since the start in the first column.",
        )
    falling = np.flatnonzero(np.diff(arrivals_s) < 0)
    if len(falling):
        first = int(falling[0])
        raise UsageError(
            f"{where} {path}: request {first + 2}, at {arrivals_s[first + 1]:g} s, is before the one above it.",
            hint="Sort the rows by their first column.",
        )
    if arrivals_s[-1] == arrivals_s[0]:
        raise UsageError(
            f"{where} {path}: all requests come at the same time, and no rate follows from that.",
            hint="The first column holds seconds since the start.",
        )
    return arrivals_s


def _rows(file: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows with something in them, each with its line; a header that comes first is left out."""
    is_first = True
    for number, row in enumerate(csv.reader(file), 1):
        if not any(cell.strip() for cell in row):
            continue
        if not is_first or _number(row[0]) is not None:
            yield number, row
        is_first = False


def _times(rows: Iterable[tuple[int, list[str]]], where: str) -> list[float]:
    times: list[float] = []
    for number, row in rows:
        time_s = _number(row[0])
        if time_s is None or not 0 <= time_s < math.inf:
            raise UsageError(
                f"{where}: line {number} begins with {row[0][:20]!r}, which is no time.",
                hint="The first column holds seconds since the start, from 0.",
            )
        times.append(time_s)
        if len(times) > _MOST_REQUESTS:
            raise UsageError(f"{where}: more than {_MOST_REQUESTS:,} requests.", hint="Give a part of it.")
    return times


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_conversations(path: Path, *, where: str = "--arrivals") -> tuple[float, Conversations]:
    """A trace's mean rate, and the tokens of each prompt and each answer from its second and third column.

    Raises:
        UsageError: As for ``read_trace``, or a row without both numbers of tokens.
    """
    arrivals_s = read_trace(path, where=where)
    lengths: list[tuple[int, int]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in _rows(file):
            tokens = [_tokens(text) for text in row[1:3]]
            if len(tokens) < 2 or None in tokens:
                raise UsageError(
                    f"{where} {path}: line {number} has no numbers of tokens behind its time.",
                    hint="A model that generates needs seconds, tokens in and tokens out of each request.",
                )
            lengths.append((tokens[0] or 0, tokens[1] or 0))
    # A request without an answer takes none of the time that is planned for.
    answered = np.array([one for one in lengths if min(one) > 0], dtype=np.int64)
    if not len(answered):
        raise UsageError(f"{where} {path}: no request has tokens in and out.", hint="In columns two and three.")
    return mean_rate_per_s(arrivals_s), Conversations(prompts=answered[:, 0], outputs=answered[:, 1])


def _tokens(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and stripped.isdecimal() and len(stripped) < 10 else None
