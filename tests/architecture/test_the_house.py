"""What the layout promises and no linter holds: see ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

import analyzer

ROOT = Path(analyzer.__file__).parent
MODULES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}
# Where our own package may be imported by string: public names, commands and writers, each a table of data.
BY_STRING = {"__init__.py", "cli/__init__.py", "record/formats.py"}
# Executes the user's own module, by the name that the user gave.
BY_USERS_NAME = {"loading/python/user_module.py"}


# Types that share more field names than this are one concept, which a base class holds once.
_MOST_SHARED = 5


def test_no_two_types_of_the_record_are_one_concept() -> None:
    fields = {
        node.name: {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
        for path, tree in MODULES.items()
        if path.startswith(("record/", "figures"))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    alike = {
        (one, other): sorted(fields[one] & fields[other])
        for one, other in combinations(fields, 2)
        if len(fields[one] & fields[other]) > _MOST_SHARED
    }
    assert alike == {}


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


def test_names_are_the_fields_own() -> None:
    """Click, onnx_ir, coverage.py and fvcore have 0 to 1.6 of these in 10,000 lines."""
    dialect = re.compile(r"(?:^|_)(?:told|asked|kept|found|beside|said)(?:_|$)", re.IGNORECASE)
    names = {
        (path, name)
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        for name in (
            [node.name]
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            else [node.arg]
            if isinstance(node, ast.arg)
            else [node.id]
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            else []
        )
    }
    lines = sum(path.read_text("utf-8").count("\n") for path in ROOT.rglob("*.py"))
    assert 10_000 * sum(bool(dialect.search(name)) for _, name in names) / lines < 2


def test_docstrings_name_their_subject() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [
        text
        for tree in MODULES.values()
        for node in ast.walk(tree)
        if isinstance(node, documented) and (text := ast.get_docstring(node))
    ]
    roundabout = [text for text in texts if re.match(r"(?:What|Whether|Whose|Which|Who|How|Why|Where)\b", text)]
    assert len(roundabout) < 0.01 * len(texts), roundabout[:20]
