"""The list of slow tests names tests that there are: a renamed one would be run with the quick ones."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_slow_test_is_a_function_of_its_file() -> None:
    listed = (ROOT / "tests/slow_tests.txt").read_text("utf-8").split()
    assert listed == sorted(set(listed))
    files = {line.partition("::")[0] for line in listed}
    found = {
        f"{file}::{node.name}"
        for file in files
        for node in ast.parse((ROOT / file).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert set(listed) - found == set()
