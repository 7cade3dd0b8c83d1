"""Whether the tests bite: one random change at a time, and whether the quick tests of its room notice it.

    python benchmarks/mutants.py [--mutants 200] [--seed 0] [--rooms costs,ort,...] [--jobs 2]

A change turns a comparison or an operator, moves a constant, negates a condition or returns None. Each is made
in a copy of the repository, where ``pytest tests/ROOM -m "not slow"`` runs up to the first failure. Prints each
survivor with its line, and the share noticed by room. A survivor is a missing test, or code that nothing needs.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("costs", "decision", "memory", "ort", "prediction", "serving")
# Longer than the quick tests of any room take: a change that makes a loop endless is noticed as well.
TIMEOUT_S = 600
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A file with one expression changed."""

    path: Path
    line: int
    before: str
    after: str
    text: str


def main() -> None:
    """Run the mutants and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    rooms = given.rooms.split(",")
    generator = np.random.default_rng(given.seed)
    noticed, made = dict.fromkeys(rooms, 0), dict.fromkeys(rooms, 0)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "build")
        )
        for room in rooms:
            if not _passes(copy, room, given.jobs):
                sys.exit(f"The quick tests of {room} fail without a change.")
            mutants = [
                mutant for path in sorted((ROOT / "analyzer" / room).rglob("*.py")) for mutant in _mutants(path)
            ]
            for index in sorted(generator.permutation(len(mutants))[: given.mutants // len(rooms)]):
                mutant = mutants[index]
                place = copy / mutant.path.relative_to(ROOT)
                place.write_text(mutant.text, encoding="utf-8")
                survived = _passes(copy, room, given.jobs)
                shutil.copy(mutant.path, place)
                made[room] += 1
                noticed[room] += not survived
                if survived:
                    print(
                        f"{mutant.path.relative_to(ROOT)}:{mutant.line}: {mutant.before} -> {mutant.after}",
                        flush=True,
                    )
    print("\n| room | changes | noticed |\n|---|---:|---:|")
    for room in rooms:
        print(f"| {room} | {made[room]} | {noticed[room] / max(1, made[room]):.0%} |")
    print(f"| all | {sum(made.values())} | {sum(noticed.values()) / max(1, sum(made.values())):.0%} |")


def _passes(copy: Path, room: str, jobs: int) -> bool:
    command = [sys.executable, "-m", "pytest", f"tests/{room}", "-x", "-q", "-m", "not slow", "-n", str(jobs)]
    try:
        return (
            subprocess.run(command, cwd=copy, capture_output=True, timeout=TIMEOUT_S, check=False).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def _mutants(path: Path) -> Iterator[Mutant]:
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        changed = _changed(node)
        before = ast.get_source_segment(source, node) if changed is not None else None
        if changed is None or before is None or (isinstance(node, ast.Constant) and _is_in_text(source, node)):
            continue
        after = ast.unparse(ast.fix_missing_locations(changed))
        lines = source.encode().splitlines(keepends=True)
        assert isinstance(node, ast.expr | ast.stmt)
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        text = source.encode()[:start] + f"{after}".encode() + source.encode()[start + len(before.encode()) :]
        yield Mutant(path=path, line=node.lineno, before=before, after=after, text=text.decode())


def _changed(node: ast.AST) -> ast.AST | None:
    """Return the changed expression or statement; None for one that is left as it is."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=comparators):
            return ast.Compare(left=left, ops=[_COMPARISONS[type(operator)]()], comparators=comparators)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return ast.BinOp(left=left, op=_OPERATORS[type(operator)](), right=right)
        case ast.Constant(value=bool(value)):
            return ast.Constant(value=not value)
        case ast.Constant(value=int(value) | float(value)):
            return ast.Constant(value=value * 2 or 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return ast.Return(value=ast.Constant(value=None))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test=ast.UnaryOp(op=ast.Not(), operand=test), body=body, orelse=orelse)
        case _:
            return None


def _is_in_text(source: str, node: ast.Constant) -> bool:
    """Return whether a number is part of an f-string: its place in the source differs by release of Python."""
    line = source.splitlines()[node.lineno - 1]
    return 'f"' in line or "f'" in line


if __name__ == "__main__":
    main()
