"""What the layout promises and no linter holds: see ARCHITECTURE.md."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import analyzer

ROOT = Path(analyzer.__file__).parent
MODULES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}
# Where our own package may be imported by string: public names, commands and writers, each a table of data.
BY_STRING = {"__init__.py", "cli/__init__.py", "record/formats.py"}
# Executes the user's own module, by the name that the user gave.
BY_USERS_NAME = {"loading/python/user_module.py"}


def _declared(tree: ast.Module) -> Iterator[str]:
    """Names of the types that a module declares: classes, and aliases such as ``Shape = tuple[int, ...]``."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id.lstrip("_")
            if name[:1].isupper() and not name.isupper():
                yield name


def test_a_type_name_is_declared_once() -> None:
    homes = defaultdict(list)
    for path, tree in MODULES.items():
        for name in _declared(tree):
            homes[name].append(path)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_no_folder_holds_more_modules_than_can_be_looked_over() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in MODULES:
        counts[str(Path(path).parent)] += 1
    assert {folder: count for folder, count in counts.items() if count > 26} == {}


def test_our_own_modules_are_imported_by_string_in_three_places_only() -> None:
    importers = {
        path
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) or getattr(node.func, "id", None))
        in ("import_module", "__import__")
    }
    assert importers == BY_STRING | BY_USERS_NAME


def test_every_module_says_its_place_in_its_first_line() -> None:
    silent = [path for path, tree in MODULES.items() if not (ast.get_docstring(tree) or "").split("\n")[0]]
    assert silent == []


def test_every_folder_is_a_package() -> None:
    """A folder without ``__init__.py`` is missing in the wheel's type information."""
    folders = {path.parent for path in ROOT.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []
