"""Whether the tests bite: one random change at a time, and whether the quick tests of its room notice it.

    python benchmarks/mutants.py [--mutants 200] [--seed 0] [--rooms costs,ort,...]

A change turns a comparison or an operator, moves a constant, negates a condition or returns None. Each is made
in a copy of the repository. There the tests of its room that execute the line run up to the first failure; if
all pass, the room's other quick tests run as well. Prints each survivor with its line, and the share noticed by
room. A survivor is a missing test, or code that nothing needs.

Places where a change alters no behaviour are never chosen: type annotations, texts (f-strings, ``raise``),
assertions (they narrow types), flags of a dataclass and its fields, sizes of caches, ``strict=`` of a zip.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("costs", "decision", "memory", "ort", "prediction", "serving")
# Longer than the quick tests of any room take: a change that makes a loop endless is noticed as well.
TIMEOUT_S = 600
# A change that makes a list endless ends here.
MEMORY_BYTES = 6 << 30
# Of pytest: a test failed, as against an error before any ran.
_FAILED = 1
_UNCHANGED_CALLS = ("dataclass", "field", "cache", "lru_cache", "TypeVar")
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
    last_line: int
    before: str
    after: str
    occurrence: int
    text: str

    def draw(self, seed: int) -> str:
        """Return the place's lot, which no change elsewhere in the code alters."""
        lot = f"{seed} {self.path.relative_to(ROOT)} {self.before} {self.after} {self.occurrence}"
        return hashlib.sha256(lot.encode()).hexdigest()


def main() -> None:
    """Run the mutants and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", default=",".join(ROOMS))
    given = parser.parse_args()
    rooms = given.rooms.split(",")
    noticed, made = dict.fromkeys(rooms, 0), dict.fromkeys(rooms, 0)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "build")
        )
        for room in rooms:
            tests = executing_tests(copy, room)
            chosen = sorted(mutants_of(room), key=lambda mutant: mutant.draw(given.seed))
            for mutant in chosen[: -(-given.mutants // len(rooms))]:
                made[room] += 1
                if is_noticed(copy, room, mutant, tests):
                    noticed[room] += 1
                else:
                    print(
                        f"{mutant.path.relative_to(ROOT)}:{mutant.line}: {mutant.before} -> {mutant.after}",
                        flush=True,
                    )
    print("\n| room | changes | noticed |\n|---|---:|---:|")
    for room in rooms:
        print(f"| {room} | {made[room]} | {noticed[room] / max(1, made[room]):.0%} |")
    print(f"| all | {sum(made.values())} | {sum(noticed.values()) / max(1, sum(made.values())):.0%} |")


def executing_tests(copy: Path, room: str) -> Mapping[Path, Mapping[int, Sequence[str]]]:
    """Return the quick tests of a room that execute each line of it, by file and line."""
    settings, data = copy / "coverage.ini", copy / "coverage.data"
    settings.write_text("[run]\n", encoding="utf-8")
    options = [f"--cov=analyzer/{room}", "--cov-context=test", "--cov-report=", f"--cov-config={settings}"]
    if _status(copy, [f"tests/{room}", *options], COVERAGE_FILE=str(data)):
        sys.exit(f"The quick tests of {room} fail without a change.")
    coverage = CoverageData(str(data))
    coverage.read()
    return {
        Path(file).relative_to(copy): {
            line: sorted({context.rpartition("|")[0] for context in contexts if context})
            for line, contexts in coverage.contexts_by_lineno(file).items()
        }
        for file in coverage.measured_files()
    }


def is_noticed(
    copy: Path, room: str, mutant: Mutant, tests: Mapping[Path, Mapping[int, Sequence[str]]]
) -> bool:
    """Make the change in the copy, run the room's tests, and take the change back."""
    path = mutant.path.relative_to(ROOT)
    lines = tests.get(path, {})
    first = sorted({test for line in range(mutant.line, mutant.last_line + 1) for test in lines.get(line, ())})
    (copy / path).write_text(mutant.text, encoding="utf-8")
    try:
        # Results that a test caches, and lines that run on import, count for other tests too.
        return (bool(first) and _status(copy, first) == _FAILED) or bool(_status(copy, [f"tests/{room}"]))
    finally:
        shutil.copy(mutant.path, copy / path)


def _status(copy: Path, arguments: Sequence[str], **environment: str) -> int:
    """Return the exit status of pytest, up to the first failure."""
    command = [sys.executable, "-m", "pytest", *arguments, "-x", "-q", "-n", "0", "-m", "not slow"]
    try:
        return subprocess.run(
            [*command, "-p", "no:cacheprovider"],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", **environment},
            capture_output=True,
            timeout=TIMEOUT_S,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES)),
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return _FAILED


def mutants_of(room: str) -> Iterator[Mutant]:
    """Yield every change that can be made in a room."""
    for path in sorted((ROOT / "analyzer" / room).rglob("*.py")):
        seen: dict[tuple[str, str], int] = {}
        source = path.read_text(encoding="utf-8")
        encoded = source.encode()
        lines = encoded.splitlines(keepends=True)
        for node in _changeable(ast.parse(source)):
            changed = _changed(node)
            before = ast.get_source_segment(source, node) if changed is not None else None
            if changed is None or before is None:
                continue
            assert isinstance(node, ast.expr | ast.stmt)
            after = ast.unparse(ast.fix_missing_locations(changed))
            if isinstance(node, ast.BinOp | ast.Compare | ast.IfExp):
                after = f"({after})"
            start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
            text = encoded[:start] + after.encode() + encoded[start + len(before.encode()) :]
            seen[before, after] = seen.get((before, after), 0) + 1
            yield Mutant(
                path=path,
                line=node.lineno,
                last_line=node.end_lineno or node.lineno,
                before=before,
                after=after,
                occurrence=seen[before, after],
                text=text.decode(),
            )


def _changeable(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in which a change alters behaviour."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert() | ast.keyword(arg="strict"):
            return
        case ast.Call(func=ast.Name(id=name)) if name in _UNCHANGED_CALLS:
            return
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changeable(child)


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


if __name__ == "__main__":
    main()
