"""Print the lines of Python of each room, and fail where one is above its budget in ``size.toml``.

    python .ci/size.py

A budget is raised in the commit that needs it, with the reason in its message.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "analyzer"


def main() -> int:
    """Compare every room with its budget; the modules of the top level are one room."""
    budgets = tomllib.loads((HERE / "size.toml").read_text(encoding="utf-8"))["lines"]
    lines = dict.fromkeys(budgets, 0)
    for path in PACKAGE.rglob("*.py"):
        room, *inner = path.relative_to(PACKAGE).parts
        with path.open("rb") as file:
            size = sum(1 for _ in file)
        for name in (room if inner else "top level", "analyzer"):
            lines[name] = lines.get(name, 0) + size
    for name, size in sorted(lines.items(), key=lambda entry: -entry[1]):
        over = size - budgets.get(name, 0)
        print(
            f"{name:<20} {size:>7,} {budgets.get(name, 0):>7,}" + (f"  {over:,} too many" if over > 0 else "")
        )
    return int(any(size > budgets.get(name, 0) for name, size in lines.items()))


if __name__ == "__main__":
    sys.exit(main())
