"""Writes ``tests/slow_tests.txt``, which ``make test`` leaves out, from a run of every test.

    python -m pytest --numprocesses 2 --dist loadfile --junitxml=build/all.xml
    python benchmarks/slow_tests.py build/all.xml
    python -m pytest --numprocesses 2 --dist loadfile -m "not slow" --junitxml=build/quick.xml
    python benchmarks/slow_tests.py build/all.xml build/quick.xml

A function counts as one, by the mean of its cases. What a file sets up once counts for the first function that
needs it, and for the next where that one is left out: hence the second run. A test that was skipped (no
browser, no compiler) stays as it was listed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).parents[1] / "tests" / "slow_tests.txt"
# On two busy cores the others take less than ten minutes together.
SLOW_S, MANY_CASES_S = 2.0, 20.0
# Listed ones stay, unless they have clearly become quicker: times differ from run to run.
STAYS_S = 1.5


def durations(path: Path) -> Mapping[str, Sequence[float]]:
    """Seconds of the cases of each function, by ``path::name``, with their set-up; none if all were skipped."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(path).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        seconds = found[f"{file}::{case.attrib['name'].partition('[')[0]}"]
        if case.find("skipped") is None:
            seconds.append(float(case.attrib["time"]))
    return found


def is_slow(seconds: Sequence[float], *, listed: bool) -> bool:
    """Whether a function of such cases is left out."""
    if not seconds:
        return listed
    mean = sum(seconds) / len(seconds)
    return mean > (STAYS_S if listed else SLOW_S) or sum(seconds) > MANY_CASES_S


def main() -> None:
    before = frozenset(LIST.read_text("utf-8").split())
    runs = [durations(Path(path)) for path in sys.argv[1:]]
    slow = {name for run in runs for name, seconds in run.items() if is_slow(seconds, listed=name in before)}
    LIST.write_text("".join(f"{name}\n" for name in sorted(slow)), "utf-8")
    print(f"{len(slow)} slow functions, {len(slow - before)} new, {len(before - slow)} gone")


if __name__ == "__main__":
    main()
