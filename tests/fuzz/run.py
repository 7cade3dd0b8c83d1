"""Gives the program mutated files for as long as one likes, and says what it made of them.

    python tests/fuzz/run.py --seconds 3600 --jobs 2 --seed 0
    python tests/fuzz/run.py --kind graphs --seed 4711 --count 1       # one case again

What fails is kept whole in a folder of its own (``--keep``): the case's files, the commands, what they printed,
and ``reason.txt``. The table at the end counts cases, statuses and failures by distinct reason.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

from faults import Outcome, faults
from fuzz_case import KINDS, Case
from runner import Runner, lay_out
from seed_models import OUTPUT

# Of ten cases so many are of each kind.
SHARES = {"graphs": 6, "decoders": 1, "records": 1, "settings": 1, "cache": 1}


@dataclass
class Tally:
    """What was found.

    Attributes:
        statuses: How many commands ended with each status, by kind.
        cases: How many cases, by kind.
        slowest, largest: Seconds and bytes with the seed of the case, by kind.
        reasons: Seeds by kind and reason.
    """

    statuses: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    cases: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)
    largest: dict[str, tuple[float, int]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, case: Case, outcomes: list[Outcome]) -> list[str]:
        """Counts a case; the reasons for which it fails."""
        found: list[str] = []
        self.cases[case.kind] += 1
        for outcome in outcomes:
            self.statuses[case.kind][outcome.ended or str(outcome.status)] += 1
            self.slowest[case.kind] = max(self.slowest.get(case.kind, (0.0, 0)), (outcome.seconds, case.seed))
            self.largest[case.kind] = max(self.largest.get(case.kind, (0, 0)), (outcome.peak, case.seed))
            found += faults(outcome)
        for reason in dict.fromkeys(found):
            self.reasons[case.kind, reason].append(case.seed)
        return found

    def join(self, other: Tally) -> None:
        """Adds what another found."""
        self.cases.update(other.cases)
        for kind, statuses in other.statuses.items():
            self.statuses[kind].update(statuses)
        for mine, others in ((self.slowest, other.slowest), (self.largest, other.largest)):
            for kind, item in others.items():
                mine[kind] = max(mine.get(kind, item), item)
        for key, seeds in other.reasons.items():
            self.reasons[key] += seeds

    def table(self) -> str:
        """What is printed at the end."""
        lines = [
            "kind        cases  statuses                                slowest (seed)      most memory (seed)"
        ]
        for kind in self.cases:
            statuses = " ".join(f"{status}:{count}" for status, count in sorted(self.statuses[kind].items()))
            (seconds, slow), (peak, large) = self.slowest[kind], self.largest[kind]
            memory = f"{peak / 1e9:.2f} GB ({large})"
            lines.append(
                f"{kind:<10}{self.cases[kind]:>7}  {statuses:<38}  {f'{seconds:.1f} s ({slow})':<18}  {memory}"
            )
        lines.append("")
        for (kind, reason), seeds in sorted(self.reasons.items(), key=lambda item: -len(item[1])):
            some = ", ".join(map(str, sorted(seeds)[:4]))
            lines.append(f"{len(seeds):>6}  {kind}: {reason}  (seeds {some})")
        return "\n".join([*lines, "" if self.reasons else "no failures"])


def of_kinds(kinds: list[str], seed: int) -> Iterator[tuple[str, int]]:
    """Kinds and seeds without end; a kind's seeds follow one another."""
    turns = [kind for kind in kinds for _ in range(SHARES[kind])]
    number = 0
    while True:
        yield turns[number % len(turns)], seed + number
        number += 1


def keep(case: Case, outcomes: list[Outcome], reasons: list[str], folder: Path) -> None:
    """Writes a failing case whole."""
    shutil.rmtree(folder, ignore_errors=True)
    lay_out(case, folder / "case")
    (folder / "reason.txt").write_text("\n".join(reasons) + "\n")
    commands = [
        {
            "arguments": item.arguments,
            "status": item.status,
            "ended": item.ended,
            "seconds": item.seconds,
            "peak": item.peak,
        }
        for item in outcomes
    ]
    about = {
        "kind": case.kind,
        "seed": case.seed,
        "encoding": case.encoding,
        "environment": dict(case.environment),
    }
    (folder / "case.json").write_text(
        json.dumps({**about, "steps": case.steps, "commands": commands}, indent=1)
    )
    (folder / "stdout.txt").write_bytes(b"\n".join(item.stdout[-200_000:] for item in outcomes))
    (folder / "stderr.txt").write_bytes(b"\n".join(item.stderr[-200_000:] for item in outcomes))


def work(job: int, options: argparse.Namespace) -> Tally:
    """Every ``jobs``-th case, until the time is over or all are done."""
    tally, begin = Tally(), time.perf_counter()
    with Runner() as runner:
        for number, (kind, seed) in enumerate(of_kinds(options.kind, options.seed)):
            if options.count is not None and number >= options.count:
                break
            if options.seconds is not None and time.perf_counter() - begin > options.seconds:
                break
            if number % options.jobs != job:
                continue
            case = KINDS[kind](seed)
            outcomes = runner.run(case)
            reasons = tally.add(case, outcomes)
            if reasons and any(len(tally.reasons[kind, reason]) <= 3 for reason in reasons):
                keep(case, outcomes, reasons, options.keep / f"{kind}-{seed}")
                print(f"{kind} {seed}: {reasons[0]}", file=sys.stderr, flush=True)
    return tally


def main() -> int:
    """Runs cases and prints the table; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, help="how long to go on")
    parser.add_argument("--count", type=int, help="how many cases to run")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, help="of the first case; the next have the next [one of its own]")
    parser.add_argument("--kind", action="append", choices=[*KINDS], help="repeatable; all by default")
    parser.add_argument("--keep", type=Path, default=OUTPUT / "failures", help="where failing cases go")
    options = parser.parse_args()
    options.kind = options.kind or [*KINDS]
    if options.count is None and options.seconds is None:
        options.count = 1000
    # Far from any other run's, so that hour upon hour sees other cases.
    options.seed = secrets.randbelow(2**20) * 10**6 if options.seed is None else options.seed
    print(f"seed {options.seed}", file=sys.stderr, flush=True)
    tally = Tally()
    if options.jobs == 1:
        tally = work(0, options)
    else:
        with ProcessPoolExecutor(options.jobs) as pool:  # a job that fails ends the run, and is not waited for
            for found in pool.map(work, range(options.jobs), repeat(options)):
                tally.join(found)
    print(tally.table())
    return 1 if tally.reasons else 0


if __name__ == "__main__":
    sys.exit(main())
