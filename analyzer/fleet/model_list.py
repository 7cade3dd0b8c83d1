"""Models of a fleet: files, folders, patterns, modules on the command line, and ``fleet.toml``.

[defaults] and each [[model]] hold options of the command that answers, as the command line spells them; what a
model says goes before what the defaults say.
"""

from __future__ import annotations

import ast
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from analyzer.checks.settings import read_options
from analyzer.decoding import convert
from analyzer.errors import AnalyzerError, ModelError, UsageError
from analyzer.generation.sources import is_configuration, is_generating
from analyzer.loading.model_reference import is_genai, parse_reference, split_path
from analyzer.record.fleet import FleetQuestion, Today, Traffic
from analyzer.text import first_few, latency_limit
from analyzer.toml_file import read_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model before anything is read; ``reference`` is MODEL as ``analyze`` takes it.

    Attributes:
        name: Its own in the fleet; empty for the one that its reports have.
        question: Which command answers; None for what its files say.
        options: By long option, as they are written on the command line, from the manifest.
        defaults: The same, for those models whose question takes them.
        where: What named it, for messages.
    """

    reference: str
    name: str = ""
    question: FleetQuestion | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    tags: tuple[str, ...] = ()
    traffic: Traffic | None = None
    today: Today | None = None
    where: str = ""


_LIMITS = ("p50", "p90", "p95", "p99", "mean")
# What a fleet decides for all of its models.
_NOT_BY_MODEL = (
    "run",
    "no-run",
    "output",
    "format",
    "open",
    "quiet",
    "verbose",
    "threads",
    "runs",
    "time-budget",
)


class _Traffic(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    rate: Annotated[
        Annotated[int, Meta(gt=0, lt=10**12)] | Annotated[float, Meta(gt=0, lt=1e12)],
        Meta(examples=["50 (requests a second)"]),
    ]
    p50: str | float | None = None
    p90: str | float | None = None
    p95: str | float | None = None
    p99: str | float | None = None
    mean: str | float | None = None


class _Today(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    instance: Annotated[str, Meta(min_length=1, examples=['"g5.xlarge"'])]
    count: Annotated[int, Meta(ge=1, le=10**6, examples=["2"])] = 1


class _Defaults(msgspec.Struct, kw_only=True):
    options: Annotated[dict[str, Any], Meta(examples=['{ gpu = "l4" }'])] = {}
    question: FleetQuestion | None = None
    owner: str | None = None
    tags: Annotated[tuple[str, ...], Meta(examples=['["vision"]'])] | None = None


class _Model(_Defaults, kw_only=True):
    reference: Annotated[str, Meta(pattern=r"\S", examples=['"model.py"'])]
    name: str = ""
    inputs: Any = None
    traffic: Annotated[_Traffic, Meta(examples=['{ rate = 50, p99 = "80ms" }'])] | None = None
    today: Annotated[_Today | str, Meta(examples=['{ instance = "g5.xlarge", count = 2 }'])] | None = None


class _Manifest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    defaults: dict[str, Any] = {}
    model: list[dict[str, Any]] = []


def read_manifest(path: Path) -> tuple[Entry, ...]:
    """Return the models of a manifest; patterns in references are left as they are.

    Raises:
        UsageError: It cannot be read, or holds an unknown key or a value that cannot be right; says its line.
    """
    try:
        content = read_toml(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"{path} cannot be read: {reason}.", hint="A manifest is TOML, with [[model]] tables."
        ) from error
    return tuple(_Reader(path, lines).entries(content))


class _Reader:
    def __init__(self, path: Path, lines: list[str]) -> None:
        self._path = path
        self._lines = lines

    def entries(self, content: Mapping[str, Any]) -> Iterator[Entry]:
        whole = convert(content, _Manifest, self._place(0))
        if not whole.model:
            raise UsageError(
                f"{self._path} names no model.", hint='Write [[model]] and under it reference = "model.py".'
            )
        above = self._header("defaults", 0)
        defaults = convert(whole.defaults, _Defaults, self._place(above))
        options = self._options(whole.defaults, _Defaults, above)
        for number, table in enumerate(whole.model):
            start = self._header("model", number)
            model = convert(table, _Model, self._place(start))
            own = self._options(table, _Model, start)
            if model.inputs:
                inputs = {"input": model.inputs}
                own = {**own, **self._checked(inputs, start, _Model.__struct_fields__, key="inputs")}
            given = _Today(instance=model.today) if isinstance(model.today, str) else model.today
            yield Entry(
                reference=self._reference(model.reference),
                name=model.name,
                question=model.question or defaults.question,
                options=own,
                defaults=options,
                owner=model.owner or defaults.owner or "",
                tags=(defaults.tags or ()) if model.tags is None else model.tags,
                traffic=self._traffic(model.traffic, start) if model.traffic else None,
                today=Today(instance=given.instance, count=given.count) if given else None,
                where=f"{self._path}:{start + 1}",
            )

    def _reference(self, text: str) -> str:
        """As the command line would have it, started in the working folder: paths begin at the manifest."""
        path, name = split_path(text)
        if not path:
            return text  # package.module:Name
        whole = os.path.join(self._path.parent, path)
        return (os.path.normpath(whole) if os.path.isabs(path) else os.path.relpath(whole)) + name

    def _options(self, table: Mapping[str, Any], kind: type[_Defaults], start: int) -> Mapping[str, Any]:
        """Return the options of a table: under ``options``, or alongside the table's own keys."""
        own = kind.__struct_fields__
        alongside = {key: value for key, value in table.items() if key not in own}
        return self._checked({**alongside, **table.get("options", {})}, start, own)

    def _checked(
        self, table: Mapping[str, Any], start: int, own: tuple[str, ...], *, key: str = ""
    ) -> Mapping[str, Any]:
        for name, value in table.items():
            line = self._line(key or name, start)
            if name in _NOT_BY_MODEL:
                raise self._fault(start, name, "is for all models", f"give --{name} on the command line")
            try:
                location = f"{self._path}:{line + 1}:"
                read_options({name: value}, self._path, location, own, without=_NOT_BY_MODEL)
            except AnalyzerError as error:
                raise UsageError(error.message, hint=error.hint) from error
        return read_options(table, self._path, str(self._path))

    def _traffic(self, given: _Traffic, start: int) -> Traffic:
        limits = {name: value for name in _LIMITS if (value := getattr(given, name)) is not None}
        if len(limits) > 1:
            first, second, *_ = limits
            raise self._fault(start, second, f"contradicts {first}", "give one limit")
        for name, value in limits.items():
            return Traffic(
                rate=given.rate,
                limit_s=latency_limit(value, where=f"{self._place(start)(name)}: {name}"),
                percentile=0 if name == "mean" else int(name.removeprefix("p")),
            )
        return Traffic(rate=given.rate)

    def _place(self, start: int) -> Callable[[str], str]:
        """Return what names the file and the line of a key in the table that begins at a line."""
        return lambda key: f"{self._path}:{self._line(key, start) + 1}"

    def _fault(self, start: int, key: str, what: str, hint: str) -> UsageError:
        return UsageError(f"{self._path}:{self._line(key, start) + 1}: `{key}` {what}.", hint=hint)

    def _header(self, table: str, number: int) -> int:
        """Return line, from 0, on that the table of this number begins; 0 where it is written another way."""
        header = re.compile(rf"\s*\[\[?\s*{table}\s*\]?\]")
        result = [index for index, line in enumerate(self._lines) if header.match(line)]
        return result[number] if number < len(result) else 0

    def _line(self, key: str, start: int) -> int:
        """Return the 0-based line of a key in the table that begins at ``start``; the table's where unseen."""
        word = re.compile(rf"(^|[\s{{,.\[])[\"']?{re.escape(key)}[\"']?\s*(=|\.|\])")
        for index in range(start, len(self._lines)):
            if index > start and re.match(r"\s*\[\[", self._lines[index]):
                break
            if word.search(self._lines[index]):
                return index
        return start


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
    """Return the models that arguments name, each once, in their order; all of them have a name.

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
    """Yield the models of a folder or a pattern; anything else as it is.

    Raises:
        ModelError: A folder or a pattern without models.
    """
    text = entry.reference
    if os.path.isdir(text) and not _generates(text):
        result = sorted(_in_folder(Path(text)))
        if not result:
            raise ModelError(
                f"{text} holds no model.",
                hint="Looked for: .onnx, .pt2, .py with a model in it, folders with config.json.",
            )
    elif glob.has_magic(split_path(text)[0]) and not os.path.exists(text):
        result = sorted(path for path in glob.glob(text, recursive=True) if _may_be_model(path))
        if not result:
            raise ModelError(f"{text} fits no model.", hint="Quote it if the shell should leave it alone.")
    else:
        yield entry
        return
    if entry.name and len(result) > 1:
        raise UsageError(
            f"{entry.where}: {len(result)} models cannot all be called {entry.name}.",
            hint="Leave the name out, or name one model.",
        )
    for path in result:
        yield replace(entry, reference=path)


def _generates(path: str) -> bool:
    """Return whether a folder is itself a model that generates."""
    return any(os.path.isfile(os.path.join(path, name)) for name in _CONFIGURATIONS)


def _may_be_model(path: str) -> bool:
    if path.endswith(".py") and _NO_MODEL_FILES.fullmatch(Path(path).stem):
        return False
    return _generates(path) if os.path.isdir(path) else path.lower().endswith(_SUFFIXES)


def _in_folder(folder: Path) -> Iterator[str]:
    """Yield models of a folder and of those in it: graphs, saved programs, Python files that define one."""
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
    """Return whether a Python file looks as if a model stood in it; the file is read, not run."""
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
    """Return an entry with a name: its own, else the one that its reports have."""
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
