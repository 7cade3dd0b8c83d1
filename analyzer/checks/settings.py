"""The settings of ``pyproject.toml`` (``[tool.analyzer]``): run options, budgets and rule selection.

One reader for all commands. Which keys there are, and what kind of value each takes, stands in
``analyzer.options``. ``[tool.analyzer.check]`` holds the gate's own keys, and may hold any run option that
shall differ for it. Nothing is guessed: an unknown key or a value of the wrong type is an error that names the
file and the key.

Settings come with the model, whose author may be a stranger: every path in them starts and stays inside the
folder of their file, and no key starts a program, loses a file or raises a limit.
"""

from __future__ import annotations

import glob
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from analyzer.decoding import convert
from analyzer.errors import UsageError
from analyzer.option_kinds import ABOVE_ZERO, LATENCIES, LATENCY, NUMBER, WHOLE, Option, left_out, parts
from analyzer.options import OPTIONS, GateOptions, in_settings
from analyzer.record.output_files import STANDARD_OUTPUT
from analyzer.text import did_you_mean
from analyzer.toml_file import is_toml, read_toml, split_entry

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
LEVELS = (*SEVERITIES, "never")

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
RUN_OPTIONS = MappingProxyType({option.name: option for option in in_settings("tool.analyzer")})
GATE_OPTIONS = MappingProxyType({option.name: option for option in in_settings("tool.analyzer.check")})


class Ignore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of ``ignore``.

    Attributes:
        code: A rule's code or the beginning of one (``A2`` is every ``A2xx``).
        operator: Shell pattern for the operator's module path, name or type; ``*`` is any.
        reason: Why it is accepted, shown with every finding that it sets aside.
    """

    code: Annotated[str, Meta(examples=['"A202"'])]
    operator: Annotated[str, Meta(pattern=r"\S", examples=['"head.*"'])] = "*"
    reason: Annotated[str, Meta(pattern=r"\S|^$", examples=['"runs once a batch"'])] = ""


class _Ignored(msgspec.Struct):
    ignore: Annotated[
        tuple[str | Ignore, ...],
        Meta(examples=['["A202", { code = "A101", operator = "*", reason = "…" }]']),
    ]


class CheckSettings(GateOptions):
    """The failures of ``analyze check``.

    Attributes:
        fail_on: The severity from which the check fails; ``never`` to report alone.
        raise_to_error, raise_to_warning: Codes whose findings become errors, or warnings.
        max_latency_s: Longest latency by plan; the key ``""`` is the plan that the target device runs.
        options: Run options that differ for the check, by long option.
    """

    raise_to_error: tuple[str, ...] = ()
    options: Mapping[str, Any] = NO_OPTIONS
    models: tuple[ModelSettings, ...] = ()

    def for_model(self, reference: str) -> CheckSettings:
        """Return what holds for a model: the tables that name it go before these settings, the last first."""
        settings = self
        for table in self.models:
            if table.names(reference):
                settings = settings.with_fields(table.fields)
                settings = settings.replace(options={**settings.options, **table.options})
        return settings

    def with_fields(self, fields: Mapping[str, Any]) -> CheckSettings:
        """Return the settings with other values on top; what is ignored adds up."""
        return self.replace(**{**fields, "ignore": self.ignore + fields.get("ignore", ())})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A table ``[[tool.analyzer.check.model]]``: a model or a pattern of some, and what differs for them."""

    path: str
    fields: Mapping[str, Any]
    options: Mapping[str, Any]

    def names(self, reference: str) -> bool:
        """Return whether a model is the table's, or one of its pattern."""
        (file, name), (own, own_name) = _split(reference), _split(self.path)
        files = {os.path.realpath(one) for one in (own, *glob.glob(own, recursive=True))}
        return own_name in ("", name) and bool(own) == bool(file) and os.path.realpath(file) in files


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of ``[tool.analyzer]``: run options by long option, as they are typed, and the gate's own."""

    options: Mapping[str, Any] = field(default_factory=dict)
    check: CheckSettings = field(default_factory=CheckSettings)

    def default_map(self, *, check: bool = False) -> dict[str, Any]:
        """Return the options as Click's ``default_map`` wants them: keys with underscores."""
        merged = {**self.options, **(self.check.options if check else {})}
        if check:  # A page is what `run` writes; the gate prints unless its own table says otherwise.
            merged = {
                key: value
                for key, value in merged.items()
                if key in self.check.options or key not in ("format", "output")
            }
        return {key.replace("-", "_"): value for key, value in merged.items()}


def read_settings(start: Path | str, *, folder: Path | None = None) -> Settings:
    """Read the settings that hold for a model.

    Args:
        start: The model's file or folder; it need not exist.
        folder: Where to look when nothing is found upwards from ``start``; the working folder by default.

    Returns:
        The nearest ``[tool.analyzer]`` upwards from ``start``, else from ``folder``, else the defaults.

    Raises:
        UsageError: The file is no TOML, or holds an unknown key or a value that cannot be right.
    """
    for origin in (Path(start), folder or Path.cwd()):
        resolved = origin.resolve()
        for parent in (resolved, *resolved.parents):
            path = parent / "pyproject.toml"
            table = _table(path) if path.is_file() else None
            # The nearest file that has the table: a pyproject.toml without one belongs to another tool.
            if table is not None:
                return parse(table, path)
    return Settings()


def parse(table: Mapping[str, Any], path: Path) -> Settings:
    """Return settings from the table ``[tool.analyzer]`` that was read from ``path``."""
    _check_sizes(table, f"{path}: [tool.analyzer]")
    gate = table.get("check", {})
    if not isinstance(gate, Mapping):
        raise UsageError(f"{path}: [tool.analyzer.check] must be a table", hint="write `[tool.analyzer.check]`")
    plain = {key: value for key, value in table.items() if key != "check"}
    options = read_options(plain, path, f"{path}: [tool.analyzer]", ("check",))
    return Settings(options=options, check=_check(gate, path))


def levels(values: Iterable[str], *, where: str) -> tuple[str, tuple[str, ...]]:
    """Return a severity threshold and rule codes from what ``fail-on`` lists.

    ``["warning"]`` fails from warnings on; ``["A203"]`` keeps the threshold at ``error`` and makes
    findings of A203 errors; both may stand together.
    """
    level = ""
    codes: list[str] = []
    for value in values:
        if value in LEVELS:
            # Of several levels the strictest holds, in whatever order they stand.
            level = value if not level else max(level, value, key=("never", *SEVERITIES).index)
        elif re.fullmatch(r"A\d{0,3}", value.upper()):
            codes.append(value.upper())
        else:
            hint = did_you_mean(value.lower(), LEVELS, f"One of {', '.join(LEVELS)}, or a code like A101.")
            raise UsageError(f"{where}: {value!r} is neither a severity nor a rule's code", hint=hint)
    return level or "error", tuple(codes)


_LONGEST_TEXT = 4000
# Of an unknown key more than this is not repeated.
_LONGEST_SHOWN = 60


def _table(path: Path) -> Mapping[str, Any] | None:
    """Return the table ``[tool.analyzer]`` of a file, None where it has none."""
    try:
        content = read_toml(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint="mend the file; nothing was analysed"
        ) from error
    tool = content.get("tool", {})
    table = tool.get("analyzer") if isinstance(tool, Mapping) else None
    if table is not None and not isinstance(table, Mapping):
        raise UsageError(f"{path}: [tool.analyzer] must be a table", hint="write `[tool.analyzer]`")
    return table


def _check_sizes(value: Any, where: str) -> None:
    """Refuse what no setting needs, and what reading it as a duration or a number could take for ever."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_sizes(inner, f"{where} {key}" if len(key) < _LONGEST_SHOWN else where)
    elif isinstance(value, list):
        for inner in value:
            _check_sizes(inner, where)
    elif isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise UsageError(f"{where}: a text of {len(value):,} characters", hint=f"at most {_LONGEST_TEXT:,}")


def read_options(
    table: Mapping[str, Any],
    path: Path,
    location: str,
    extra: tuple[str, ...] = (),
    *,
    without: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """Return the options of a TOML table, by long option, as they are written on the command line.

    Paths start and stay in the folder of the file ``path``; ``location`` names the table in messages. It may
    have the keys ``extra`` too, and no option of ``without``, which the caller explains.

    Raises:
        UsageError: An unknown key, or a value that cannot be right.
    """
    for key in table:
        if key not in RUN_OPTIONS:
            raise _unknown_key(location, key, {*RUN_OPTIONS, *extra}.difference(without))
    return MappingProxyType(
        {key: _given(RUN_OPTIONS[key], value, path, location) for key, value in table.items()}
    )


def _given(option: Option, value: Any, path: Path, location: str) -> Any:
    """Return a value of TOML as the command line has it; its paths start and stay in the settings' folder."""
    where, kind = f"{location} {option.name}", option.kind
    # What is wrong is refused here: Click, or a conversion, would say so of an option that was not typed.
    if not kind.accepts(value):
        raise option.refuse(value, where)
    # A number of TOML has no unit, as a text of figures alone has none.
    option.convert(str(value) if kind is LATENCY else value, where)
    if kind is LATENCIES:
        return value
    if kind.repeats:
        return tuple(value) if isinstance(value, list) else (value,)
    if kind.names == "file":
        return Path(_shown(_inside(value, path, where)))
    if kind.names == "output" and value != STANDARD_OUTPUT:
        # A slash at the end says that it is a folder.
        return _shown(_inside(value, path, where)) + (os.sep if value.endswith(("/", os.sep)) else "")
    if kind.names == "device":
        return ",".join(_device(name, path, where) for name in parts(value))
    if kind.is_flag or kind in (WHOLE, NUMBER, ABOVE_ZERO):
        return value
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _device(name: str, path: Path, where: str) -> str:
    """Return a device of the catalogue as it is, FILE.toml or FILE.toml:NAME with its path."""
    if not is_toml(name):
        return name
    file, entry = split_entry(name)
    return _shown(_inside(file, path, where)) + (f":{entry}" if entry else "")


def _inside(value: str, path: Path, where: str) -> Path:
    """Return the file or folder that a path of the settings names, links followed.

    Raises:
        UsageError: It lies outside of the settings' folder.
    """
    folder = os.path.realpath(path.parent)
    try:
        # Followed here, and the result is what is opened: what was judged, not its name.
        real = Path(os.path.realpath(os.path.join(folder, value)))
    except ValueError as error:  # a null byte
        raise UsageError(f"{where} is no path: {reprlib.repr(value)}", hint="change it there") from error
    if not real.is_relative_to(folder):
        raise UsageError(
            f"{where}: {reprlib.repr(value)} lies outside of {folder}, the folder of the settings",
            hint="give it on the command line, or a path inside of that folder",
        )
    return real


def _shown(real: Path) -> str:
    """Return a path as it is typed where the program was started, whole where it lies elsewhere."""
    here = os.getcwd()
    return os.path.relpath(real, here) if real.is_relative_to(here) else str(real)


# Options that a file may not give: whoever wrote it is not who runs the program.
_COMMAND_LINE_ALONE = frozenset(option.name for option in OPTIONS if option.commands and not option.settings)


def _unknown_key(location: str, key: str, known: Iterable[str]) -> UsageError:
    if key in _COMMAND_LINE_ALONE:
        return UsageError(
            f"{location} {key} can only be given on the command line", hint=f"take `{key}` out of the file"
        )
    words = sorted(known)
    key = key if len(key) < _LONGEST_SHOWN else reprlib.repr(key)
    # Underscores are what the keywords of analyze() have, and the first thing that is tried.
    hint = did_you_mean(key.replace("_", "-").lower(), words, f"It knows: {', '.join(words)}.")
    return UsageError(f"{location} has an unknown key `{key}`", hint=hint)


def _check(table: Mapping[str, Any], path: Path) -> CheckSettings:
    location = f"{path}: [tool.analyzer.check]"
    fields, options = _gate(table, path, location, "model")
    tables = table.get("model", [])
    if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
        raise UsageError(f"{location} model must be a list of tables", hint=_MODEL_TABLE)
    models: list[ModelSettings] = []
    for number, one in enumerate(tables, start=1):
        location = f"{path}: [[tool.analyzer.check.model]] {number}"
        named = one.get("path")
        if not isinstance(named, str) or not named.strip():
            raise UsageError(f"{location} needs a path, as a text", hint=_MODEL_TABLE)
        shared = next((key for key in one if key in FOR_ALL_MODELS), None)
        if shared is not None:
            raise UsageError(
                f"{location} {shared} is for all models", hint=f"write {shared} in [tool.analyzer.check]"
            )
        file, name = _split(named)
        shown = f"{_shown(_inside(file, path, f'{location} path'))}{name}" if file else named
        own, differing = _gate(one, path, location, "path")
        models.append(ModelSettings(path=shown, fields=own, options=differing))
    return CheckSettings(**fields, options=options, models=tuple(models))


def _split(reference: str) -> tuple[str, str]:
    """Return the file of MODEL, and what names the model in it; no file of one that is named otherwise."""
    match = re.fullmatch(r"(.+?\.py)(:.*)", reference, re.DOTALL)
    return (match[1], match[2]) if match else ("", reference) if ":" in reference[2:] else (reference, "")


# What a call decides once, however many models it checks.
FOR_ALL_MODELS = ("format", "output", "quiet", "verbose")
_MODEL_TABLE = 'write [[tool.analyzer.check.model]] and under it path = "model.py"'


def _gate(
    table: Mapping[str, Any], path: Path, location: str, extra: str
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the gate's own fields of a table, and its options by long option; it has one key more."""
    given = {key: value for key, value in table.items() if key in GATE_OPTIONS and value != []}
    options = {key: value for key, value in table.items() if key not in GATE_OPTIONS and key != extra}
    for name, value in given.items():
        if name == "ignore":
            given[name] = convert({name: value}, _Ignored, location).ignore
        else:
            given[name] = _given(GATE_OPTIONS[name], value, path, location)
    return gate_fields(given, f"{location} "), read_options(options, path, location, (*GATE_OPTIONS, extra))


def gate_fields(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return attributes of ``CheckSettings`` from values by long option, of TOML or of the command line.

    None, nothing or false is an option left out. In an error ``where`` stands before an option's name.

    Raises:
        UsageError: A value that cannot be right.
    """
    fields: dict[str, Any] = {}
    for attribute, option in CheckSettings.declared.items():
        value: Any = given.get(option.name)
        place = f"{where}{option.name}"
        if left_out(value):
            continue
        if option.kind.repeats:
            value = [part for one in value for part in (parts(one) if isinstance(one, str) else [one]) if part]
        if option.name == "fail-on":
            fields[attribute], fields["raise_to_error"] = levels(value, where=place)
        elif option.name == "warn-on":
            fields[attribute] = levels(value, where=place)[1]
        elif option.name == "ignore":
            entries = (Ignore(code=one) if isinstance(one, str) else one for one in value)
            fields[attribute] = tuple(msgspec.structs.replace(one, code=one.code.upper()) for one in entries)
        else:
            fields[attribute] = option.convert(value, place)
    return fields
