"""What the command line names -> models: files, folders, patterns, modules, manifests."""

from __future__ import annotations

import ast
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from analyzer.errors import ModelError, UsageError
from analyzer.fleet.entry import Entry
from analyzer.fleet.manifest import read_manifest
from analyzer.generation.sources import is_configuration, is_generating
from analyzer.loading.model_reference import is_genai, parse_reference, split_path
from analyzer.text import first_few

_SUFFIXES = (".onnx", ".pt2", ".py")
_CONFIGURATIONS = ("config.json", "genai_config.json")
# Folders of tools, of environments and of what was installed.
_NOT_LOOKED_INTO = re.compile(r"\..*|__pycache__|node_modules|site-packages|venv|build|dist|tests?")
_NO_MODEL_FILES = re.compile(r"_.*|test_.*|.*_test|conftest|setup")
# The names of the fleet's own files.
_RESERVED = ("index", "fleet")
_NAME = re.compile(r"[\w][\w .+,=()\[\]-]*")
_LONGEST_NAME = 150


def models_of(arguments: Sequence[str]) -> tuple[Entry, ...]:
    """The models that arguments name, each once, in their order; all of them have a name.

    Raises:
        ModelError: One that is not there, a folder or pattern without models, or none at all.
        UsageError: Two models of one name, or a name that no file can have.
    """
    entries = [entry for argument in arguments for entry in _of(argument)]
    if not entries:
        raise ModelError("No model is named.", hint="For example: analyze fleet models/ zoo/*.onnx fleet.toml.")
    return tuple(_each_once(_named(entry) for entry in entries))


def _of(argument: str) -> Iterator[Entry]:
    if argument.lower().endswith(".toml"):
        for entry in read_manifest(Path(argument)):
            yield from expanded(entry)
        return
    yield from expanded(Entry(reference=argument, where=argument))


def expanded(entry: Entry) -> Iterator[Entry]:
    """The models of a folder or a pattern; anything else as it is.

    Raises:
        ModelError: A folder or a pattern without models.
    """
    text = entry.reference
    if os.path.isdir(text) and not _generates(text):
        found = sorted(_in_folder(Path(text)))
        if not found:
            raise ModelError(
                f"{text} holds no model.",
                hint="Looked for: .onnx, .pt2, .py with a model in it, folders with config.json.",
            )
    elif glob.has_magic(split_path(text)[0]) and not os.path.exists(text):
        found = sorted(path for path in glob.glob(text, recursive=True) if _may_be_model(path))
        if not found:
            raise ModelError(f"{text} fits no model.", hint="Quote it if the shell should leave it alone.")
    else:
        yield entry
        return
    if entry.name and len(found) > 1:
        raise UsageError(
            f"{entry.where}: {len(found)} models cannot all be called {entry.name}.",
            hint="Leave the name out, or name one model.",
        )
    for path in found:
        yield replace(entry, reference=path)


def _generates(path: str) -> bool:
    """Whether a folder is itself a model that generates."""
    return any(os.path.isfile(os.path.join(path, name)) for name in _CONFIGURATIONS)


def _may_be_model(path: str) -> bool:
    if path.endswith(".py") and _NO_MODEL_FILES.fullmatch(Path(path).stem):
        return False
    return _generates(path) if os.path.isdir(path) else path.lower().endswith(_SUFFIXES)


def _in_folder(folder: Path) -> Iterator[str]:
    """Models of a folder and of those in it: graphs, saved programs, Python files that define one."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror}.") from error
    for entry in entries:
        path = os.path.join(folder, entry.name)
        if entry.is_dir():
            if _generates(path):
                yield path
            elif not entry.is_symlink() and not _NOT_LOOKED_INTO.fullmatch(entry.name):
                yield from _in_folder(Path(path))
        elif path.lower().endswith((".onnx", ".pt2")) or _defines_a_model(path):
            yield path


def _defines_a_model(path: str) -> bool:
    """Whether a Python file looks as if a model stood in it; the file is read, not run."""
    if not path.endswith(".py") or _NO_MODEL_FILES.fullmatch(Path(path).stem):
        return False
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # named by itself it is told what is wrong with it
    return any(_is_a_model(statement) for statement in tree.body)


def _is_a_model(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.FunctionDef):
        return statement.name in ("build_model", "example_inputs")
    if isinstance(statement, ast.ClassDef):
        return any(ast.unparse(base).split(".")[-1].endswith("Module") for base in statement.bases)
    targets: Iterable[ast.expr] = ()
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = (statement.target,)
    return any(isinstance(target, ast.Name) and target.id == "model" for target in targets)


def _named(entry: Entry) -> Entry:
    """An entry with a name: its own, else the one that its reports have."""
    text = entry.reference
    question = entry.question
    if is_configuration(text) or is_genai(text):
        path = Path(text)
        if not path.exists():
            raise ModelError(f"No such file: {text}.")
        stem = (path if path.is_dir() else path.parent).resolve().name
        question = question or ("generate" if is_generating(text) else "run")
    elif text.lower().endswith(".json"):
        raise UsageError(f"{text} is a saved report, not a model.", hint="A fleet analyses models themselves.")
    else:
        # Here, before hours are spent: a file that is not there is no row.
        stem = parse_reference(text).stem
    name = entry.name or stem
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME or name.lower() in _RESERVED:
        raise UsageError(
            f"{entry.where}: {name!r} cannot be the name of a model: its files are called so.",
            hint='Give one in a manifest: name = "ranker".',
        )
    return replace(entry, name=name, question=question or "run")


def _each_once(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Leaves out what is named again (by a folder and by itself), and refuses two models of one name.

    In whatever letters: some file systems know no case.
    """
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(entry.name.casefold(), entry)
        if other is entry:
            yield entry
        elif replace(other, where="", reference="") != replace(entry, where="", reference="") or (
            os.path.realpath(other.reference) != os.path.realpath(entry.reference)
        ):
            both = first_few([other.reference, entry.reference])
            raise UsageError(
                f"Two models are called {entry.name}: {both}.",
                hint='A manifest names them: [[model]] reference = "..." and name = "...".',
            )
