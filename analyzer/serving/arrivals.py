"""When requests come: Poisson, or as a recorded trace has it."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from analyzer.arrays import Floats
from analyzer.errors import UsageError
from analyzer.serving.continuous import Conversations
from analyzer.serving.poisson import Stream, streams
from analyzer.serving.queue import Queue

# A trace's bursts are seldom: so many times as many of its requests are looked at as of Poisson arrivals.
_OF_A_TRACE = 4


@dataclass(frozen=True, slots=True)
class Poisson:
    """Requests that know nothing of each other."""

    def streams(
        self, queue: Queue, rate_per_s: float, lanes: int, requests: int, left_out: int, seed: int
    ) -> tuple[Stream, ...]:
        """Lanes of a queue that has been open for long."""
        return streams(queue, rate_per_s * queue.unit_s, lanes, requests, left_out, seed)


POISSON = Poisson()
# Either makes the requests of one queue: so many lanes, in each of which ``requests`` should count and
# ``left_out`` come before, at a rate below the queue's capacity, in the queue's unit of time.
Arrivals: TypeAlias = "Poisson | Trace"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests as they were recorded, faster or slower as a whole, and dealt out to instances.

    Attributes:
        arrivals_s: Seconds since the start, rising, ``[requests]``.
        whole_rate_per_s: The mean rate of all requests together. An instance at a lower rate gets its share of
            them, drawn at random: its bursts then last as long as theirs.
    """

    arrivals_s: Floats
    whole_rate_per_s: float

    def streams(
        self, queue: Queue, rate_per_s: float, lanes: int, requests: int, left_out: int, seed: int
    ) -> tuple[Stream, ...]:
        """Every lane is another instance's share of the trace, or of a part where the whole is too much."""
        share = min(1.0, rate_per_s / self.whole_rate_per_s)
        scale = mean_rate_per_s(self.arrivals_s) / max(self.whole_rate_per_s, rate_per_s) / queue.unit_s
        wanted = _OF_A_TRACE * requests
        if lanes * wanted < share * len(self.arrivals_s):
            parts = self._parts(share, lanes, left_out, wanted, seed)
        else:
            left_out = 0  # a trace begins where it begins
            parts = self._shares(
                share, lanes, math.ceil(requests * lanes / (share * len(self.arrivals_s))), seed
            )
        result = []
        for part in parts:
            arrivals = part * scale
            # Whose batch would have been filled after the trace's end, nothing tells.
            known = int(arrivals.searchsorted(arrivals[-1] - queue.max_delay, side="right"))
            counted_from = min(left_out, len(arrivals) - 1)
            result.append(
                Stream(
                    arrivals=arrivals,
                    counted_from=counted_from,
                    counted_to=max(known, counted_from + 1),
                    free=np.zeros(queue.servers),
                )
            )
        return tuple(result)

    def _shares(self, share: float, lanes: int, enough: int, seed: int) -> Iterator[Floats]:
        """Yield requests of as many instances as are enough; all of them together have every request once."""
        instance = np.random.default_rng(seed).random(len(self.arrivals_s)) / share
        for lane in range(min(lanes, enough, int(1 / share))):
            own = self.arrivals_s[(lane <= instance) & (instance < lane + 1)]
            # An instance to which nobody comes has the first request alone: there is always one to tell of.
            yield (own if len(own) else self.arrivals_s[:1]) - self.arrivals_s[0]

    def _parts(self, share: float, lanes: int, left_out: int, wanted: int, seed: int) -> Iterator[Floats]:
        """One instance's requests in parts of the trace that lie evenly in it."""
        number = left_out + wanted
        beyond = max(0, len(self.arrivals_s) - math.ceil(number / share))
        for lane in range(lanes):
            start = int(beyond * (lane + 0.5) / lanes)
            # So far apart are requests of which each is this instance's with the same probability.
            places = start - 1 + np.cumsum(np.random.default_rng((seed, lane)).geometric(share, number))
            own = self.arrivals_s[places[places < len(self.arrivals_s)]]
            yield own - own[0]


def mean_rate_per_s(arrivals_s: Floats) -> float:
    """Return the requests per second of a trace, whose first and last come at different times."""
    return (len(arrivals_s) - 1) / float(arrivals_s[-1] - arrivals_s[0])


# Of a stranger's file: 100 MB of times are more than a day of a large service.
_MOST_REQUESTS = 10_000_000


def read_trace(path: Path, *, where: str = "--arrivals") -> Floats:
    """Seconds of each request since the start, from the first column of a CSV file; a header line is allowed.

    Raises:
        UsageError: No such file, fewer than two requests, what is no number, or times that fall.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            times: list[float] = []
            for number, row in _rows(file):
                time_s = _number(row[0])
                if time_s is None or not 0 <= time_s < math.inf:
                    raise UsageError(
                        f"{where} {path}: line {number} begins with {row[0][:20]!r}, which is no time.",
                        hint="The first column holds seconds since the start, from 0.",
                    )
                times.append(time_s)
                if len(times) > _MOST_REQUESTS:
                    raise UsageError(
                        f"{where} {path}: more than {_MOST_REQUESTS:,} requests.", hint="Give a part of it."
                    )
            arrivals_s = np.array(times)
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


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_conversations(path: Path, *, where: str = "--arrivals") -> tuple[float, Conversations]:
    """Return trace's mean rate and the tokens of each prompt and each answer from its second and third column.

    Raises:
        UsageError: As for ``read_trace``, or a row without both numbers of tokens.
    """
    arrivals_s = read_trace(path, where=where)
    lengths: list[tuple[int, int]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in _rows(file):
            tokens = [text.strip() for text in row[1:3]]
            if len(tokens) < 2 or not all(re.fullmatch(r"[0-9]{1,9}", text) for text in tokens):
                raise UsageError(
                    f"{where} {path}: line {number} has no numbers of tokens behind its time.",
                    hint="A model that generates needs seconds, tokens in and tokens out of each request.",
                )
            lengths.append((int(tokens[0]), int(tokens[1])))
    # A request without an answer takes none of the time that is planned for.
    answered = np.array([one for one in lengths if min(one) > 0], dtype=np.int64)
    if not len(answered):
        raise UsageError(f"{where} {path}: no request has tokens in and out.", hint="In columns two and three.")
    return mean_rate_per_s(arrivals_s), Conversations(prompts=answered[:, 0], outputs=answered[:, 1])
