"""Says which tests are slow, from a run of all of them.

    python -m pytest --numprocesses 2 --dist loadfile --junitxml=build/junit.xml
    python tests/benchmarks/slow_tests.py build/junit.xml > tests/slow_tests.txt

``make test`` leaves those out, ``make test-all`` runs them. A function counts as one, by the mean of its cases.
What a file sets up once counts for the first function that needs it, and for the next where that is left out:
a second run with ``-m "not slow"`` shows these, and both files of results are given together.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

# On two busy cores the others take eight minutes together.
SLOW_S = 2.0


def durations(path: Path) -> Mapping[str, Sequence[float]]:
    """Seconds of the cases of each function, by ``path::name``, with what was set up for them."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("skipped") is None:
            file = case.attrib["classname"].replace(".", "/") + ".py"
            function = case.attrib["name"].partition("[")[0]
            found[f"{file}::{function}"].append(float(case.attrib["time"]))
    return found


def main() -> None:
    slow = {
        function
        for path in sys.argv[1:]
        for function, seconds in durations(Path(path)).items()
        if sum(seconds) / len(seconds) > SLOW_S
    }
    print(*sorted(slow), sep="\n")


if __name__ == "__main__":
    main()
