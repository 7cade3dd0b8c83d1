"""The settings of ``pyproject.toml`` (``[tool.analyzer]``): run options, budgets and rule selection.

One reader for all commands. Which keys there are, and what kind of value each takes, stands in
``analyzer.option_table``; here is how a kind is written in TOML. ``[tool.analyzer.check]`` holds the gate's own
keys, and may hold any run option that shall differ for it. Nothing is guessed: an unknown
key or a value of the wrong type is an error that names the file and the key.

Settings come with the model, whose author may be a stranger: every path in them starts and stays inside the
folder of their file, and no key starts a program, loses a file or raises a limit.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from analyzer.errors import UsageError
from analyzer.option_table import OPTIONS, in_settings
from analyzer.record.output_files import STANDARD_OUTPUT
from analyzer.text import is_duration, latency_limit, nearest, share
from analyzer.toml_file import is_toml, read_toml, split_entry

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
LEVELS = (*SEVERITIES, "never")
PLAN_NAMES = ("cpu", "gpu", "hybrid")

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """One entry of ``ignore``.

    Attributes:
        code: A rule's code or the beginning of one (``A2`` is every ``A2xx``).
        operator: Shell pattern for the operator's module path, name or type; ``*`` is any.
        reason: Why it is accepted, shown with every finding that it sets aside.
    """

    code: str
    operator: str = "*"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """What ``analyze check`` fails on.

    Attributes:
        fail_on: The severity from which the check fails; ``never`` to report alone.
        raise_to_error: Codes whose findings become errors.
        raise_to_warning: Codes whose findings become warnings.
        fail_on_uncertain: Also let a finding whose interval crosses its threshold be an error.
        ignore: What is set aside.
        max_cpu_operators: Most operators that may be forced to the CPU; None for no budget.
        max_copies: Most copies inside the graph; None for no budget.
        max_latency_s: Longest latency by plan; the key ``""`` is the plan that the target device runs.
        max_ttft_s, max_tpot_s: Longest time to the first token, and of each further one; None for no budget.
        min_tokens_per_s: Fewest output tokens a second of the whole batch; None for no budget.
        max_usd_per_month: Most dollars a month of a service; None for no budget.
        min_rate: Fewest requests a second that its instances must take within its limit; None for no budget.
        baseline: The record that figures may not rise above.
        tolerance: Share by which a figure may rise above the baseline (0.05 is 5 %).
        options: Run options that differ for the check, by long option.
    """

    fail_on: str = "error"
    raise_to_error: tuple[str, ...] = ()
    raise_to_warning: tuple[str, ...] = ()
    fail_on_uncertain: bool = False
    ignore: tuple[Ignore, ...] = ()
    max_cpu_operators: int | None = None
    max_copies: int | None = None
    max_latency_s: Mapping[str, float] = field(default_factory=dict)
    max_ttft_s: float | None = None
    max_tpot_s: float | None = None
    min_tokens_per_s: float | None = None
    max_usd_per_month: float | None = None
    min_rate: float | None = None
    baseline: Path | None = None
    tolerance: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of ``[tool.analyzer]``.

    Attributes:
        path: The file they stand in, None where there is none.
        options: Run options by long option (``time-budget``), as they are written on the command line.
        check: The gate's settings.
    """

    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    check: CheckSettings = field(default_factory=CheckSettings)

    def default_map(self, *, check: bool = False) -> dict[str, Any]:
        """The options as Click's ``default_map`` wants them: keys with underscores."""
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
        for parent in _upwards(origin):
            path = parent / "pyproject.toml"
            table = _table(path) if path.is_file() else None
            # The nearest file that has the table: a pyproject.toml without one belongs to another tool.
            if table is not None:
                return parse(table, path)
    return Settings()


def parse(table: Mapping[str, Any], path: Path) -> Settings:
    """Settings from the table ``[tool.analyzer]`` that was read from ``path``."""
    _check_sizes(table, f"{path}: [tool.analyzer]")
    gate = table.get("check", {})
    if not isinstance(gate, Mapping):
        raise UsageError(f"{path}: [tool.analyzer.check] must be a table", hint="write `[tool.analyzer.check]`")
    plain = {key: value for key, value in table.items() if key != "check"}
    options = read_options(plain, path, f"{path}: [tool.analyzer]", ("check",))
    return Settings(path=path, options=options, check=_check(gate, path))


def levels(values: Iterable[str], *, where: str) -> tuple[str, tuple[str, ...]]:
    """A severity threshold and rule codes from what ``fail-on`` lists.

    ``["warning"]`` fails from warnings on; ``["A203"]`` keeps the threshold at ``error`` and makes
    findings of A203 errors; both may stand together.
    """
    level = ""
    codes: list[str] = []
    for value in values:
        if value in LEVELS:
            # Of several levels the strictest holds, in whatever order they stand.
            level = value if not level else max(level, value, key=SEVERITY_ORDER.__getitem__)
        elif re.fullmatch(r"A\d{0,3}", value.upper()):
            codes.append(value.upper())
        else:
            meant = nearest(value.lower(), LEVELS)
            hint = f"did you mean `{meant}`?" if meant else f"one of {', '.join(LEVELS)}, or a code like A101"
            raise UsageError(f"{where}: {value!r} is neither a severity nor a rule's code", hint=hint)
    return level or "error", tuple(codes)


_LONGEST_TEXT = 4000
# Of an unknown key more than this is not repeated.
_LONGEST_SHOWN = 60
# How strict a level is: from one that nothing fails to one that anything does.
SEVERITY_ORDER: Mapping[str, int] = MappingProxyType(
    {level: strictness for strictness, level in enumerate(("never", *SEVERITIES))}
)


def _upwards(origin: Path) -> tuple[Path, ...]:
    resolved = origin.resolve()
    return (resolved, *resolved.parents)


def _table(path: Path) -> Mapping[str, Any] | None:
    """The table ``[tool.analyzer]`` of a file, None where it has none."""
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
    """Refuses what no setting needs, and what reading it as a duration or a number could take for ever."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_sizes(inner, f"{where} {key}" if len(key) < _LONGEST_SHOWN else where)
    elif isinstance(value, list):
        for inner in value:
            _check_sizes(inner, where)
    elif isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise UsageError(f"{where}: a text of {len(value):,} characters", hint=f"at most {_LONGEST_TEXT:,}")


def _is_int(value: object) -> bool:
    # In Python `true` is an int too: `batch = true` must not be a batch of 1.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_texts(value: object) -> bool:
    return _is_text(value) or (isinstance(value, list) and bool(value) and all(map(_is_text, value)))


def _is_ints(value: object) -> bool:
    return (
        _is_int(value)
        or _is_text(value)
        or (isinstance(value, list) and bool(value) and all(map(_is_int, value)))
    )


def _is_number(value: object) -> bool:
    # TOML has nan and inf, of which no option makes sense.
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _is_seconds(value: object) -> bool:
    return _is_number(value) or (is_duration(value))


def _as_comma_list(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _as_list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How a run option is written in TOML: what is accepted, in words, and what Click is handed."""

    words: str
    accepts: Callable[[object], bool]
    convert: Callable[[Any], Any]


_INT = _Kind(words="a whole number", accepts=_is_int, convert=int)
_INT_OR_AUTO = _Kind(
    words='a whole number or "auto"', accepts=lambda value: _is_int(value) or value == "auto", convert=_same
)
_NUMBER = _Kind(words="a number", accepts=_is_number, convert=float)
_SECONDS = _Kind(words='a duration ("20ms" or seconds)', accepts=_is_seconds, convert=str)
# What is no text is said by ``_latency``, which knows what to write instead.
_LATENCY = _Kind(words='a latency ("20ms")', accepts=lambda _value: True, convert=str)
_SHARE = _Kind(
    words='a share ("20%" or 0.2)', accepts=lambda value: _is_number(value) or _is_text(value), convert=str
)
_FLAG = _Kind(words="true or false", accepts=lambda value: isinstance(value, bool), convert=bool)
_TEXT = _Kind(words="a text", accepts=_is_text, convert=str)
_NAMES = _Kind(words="a text or a list of texts", accepts=_is_texts, convert=_as_comma_list)
_REPEATED = _Kind(words="a text or a list of texts", accepts=_is_texts, convert=_as_list)
_INTS = _Kind(words="a whole number or a list of them", accepts=_is_ints, convert=_as_comma_list)

_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "flag": _FLAG,
        "negation": _FLAG,
        "whole": _INT,
        "whole_or_auto": _INT_OR_AUTO,
        "whole_list": _INTS,
        "number": _NUMBER,
        "duration": _SECONDS,
        "latency": _LATENCY,
        "share": _SHARE,
        "text": _TEXT,
        "path": _TEXT,
        "names": _NAMES,
        "repeated": _REPEATED,
    }
)
RUN_OPTIONS: Mapping[str, _Kind] = MappingProxyType(
    {option.name: _KINDS[option.kind] for option in in_settings("tool.analyzer")}
)


def read_options(
    table: Mapping[str, Any],
    path: Path,
    location: str,
    extra: tuple[str, ...] = (),
    *,
    without: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """Options as a TOML table has them, by long option, as they are written on the command line.

    Args:
        table: The table.
        path: Its file: paths in it start and stay in that file's folder.
        location: The table, as messages name it.
        extra: Further keys that it may have.
        without: Options that it may not have; the caller says why where one is there.

    Raises:
        UsageError: An unknown key, or a value that cannot be right.
    """
    result = {}
    for key, value in table.items():
        kind = RUN_OPTIONS.get(key)
        if kind is None:
            raise _unknown_key(location, key, {*RUN_OPTIONS, *extra}.difference(without))
        if not kind.accepts(value):
            # Wrong types are refused here: Click would say so of an option that nobody typed.
            raise UsageError(
                f"{location} {key} must be {kind.words}, not {reprlib.repr(value)}",
                hint=f"change `{key}` there",
            )
        if kind is _LATENCY:
            _latency(value, where=f"{location} {key}")
        result[key] = _with_paths_inside(key, kind.convert(value), path, f"{location} {key}")
    return MappingProxyType(result)


def _with_paths_inside(key: str, value: Any, path: Path, where: str) -> Any:
    """A value whose paths start in the settings' folder and stay there."""
    if key == "output":
        if value == STANDARD_OUTPUT:
            return value
        # A slash at the end says that it is a folder.
        slash = os.sep if value.endswith(("/", os.sep)) else ""
        return _shown(_inside(value, path, where)) + slash
    if key in ("prices", "arrivals"):
        return _shown(_inside(value, path, where))
    if key in ("gpu", "cpu"):
        return ",".join(_device(name.strip(), path, where) for name in value.split(","))
    return value


def _device(name: str, path: Path, where: str) -> str:
    """A device of the catalogue as it is, FILE.toml or FILE.toml:NAME with its path."""
    if not is_toml(name):
        return name
    file, entry = split_entry(name)
    return _shown(_inside(file, path, where)) + (f":{entry}" if entry else "")


def _inside(value: str, path: Path, where: str) -> Path:
    """The file or folder that a path of the settings names, links followed.

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
    """A path as it is typed where the program was started, whole where it lies elsewhere."""
    here = os.getcwd()
    return os.path.relpath(real, here) if real.is_relative_to(here) else str(real)


# Options that a file may not give: whoever wrote it is not who runs the program.
_COMMAND_LINE_ALONE = frozenset(option.name for option in OPTIONS if not option.settings)


def _unknown_key(location: str, key: str, known: Iterable[str]) -> UsageError:
    if key in _COMMAND_LINE_ALONE:
        return UsageError(
            f"{location} {key} can only be given on the command line", hint=f"take `{key}` out of the file"
        )
    words = sorted(known)
    key = key if len(key) < _LONGEST_SHOWN else reprlib.repr(key)
    # Underscores are what the keywords of analyze() have, and the first thing that is tried.
    meant = nearest(key.replace("_", "-").lower(), words)
    hint = f"did you mean `{meant}`?" if meant else f"it knows: {', '.join(words)}"
    return UsageError(f"{location} has an unknown key `{key}`", hint=hint)


_CHECK_KEYS = tuple(option.name for option in in_settings("tool.analyzer.check"))


def _check(table: Mapping[str, Any], path: Path) -> CheckSettings:
    location = f"{path}: [tool.analyzer.check]"
    gate_keys = {key: value for key, value in table.items() if key in _CHECK_KEYS}
    run_options = {key: value for key, value in table.items() if key not in _CHECK_KEYS}
    level, errors = levels(_texts(gate_keys, "fail-on", location), where=f"{location} fail-on")
    _, warnings = levels(_texts(gate_keys, "warn-on", location), where=f"{location} warn-on")
    uncertain = gate_keys.get("fail-on-uncertain", False)
    if not isinstance(uncertain, bool):
        raise UsageError(f"{location} fail-on-uncertain must be true or false", hint="write `true` or `false`")
    return CheckSettings(
        fail_on=level,
        raise_to_error=errors,
        raise_to_warning=warnings,
        fail_on_uncertain=uncertain,
        ignore=tuple(_ignores(gate_keys.get("ignore", []), location)),
        max_cpu_operators=_limit(gate_keys, "max-cpu-operators", location),
        max_copies=_limit(gate_keys, "max-copies", location),
        max_latency_s=_latencies(gate_keys.get("max-latency"), location),
        max_ttft_s=_time(gate_keys, "max-ttft", location),
        max_tpot_s=_time(gate_keys, "max-tpot", location),
        min_tokens_per_s=_above_zero(gate_keys, "min-tokens-per-s", location),
        max_usd_per_month=_above_zero(gate_keys, "max-usd-per-month", location),
        min_rate=_above_zero(gate_keys, "min-rate", location),
        baseline=_baseline_path(gate_keys.get("baseline"), path, location),
        tolerance=share(gate_keys.get("tolerance", 0.0), where=f"{location} tolerance"),
        options=read_options(run_options, path, location, _CHECK_KEYS),
    )


def _texts(table: Mapping[str, Any], key: str, location: str) -> list[str]:
    value = table.get(key, [])
    if value == []:
        return []
    if not _is_texts(value):
        raise UsageError(
            f"{location} {key} must be a severity, or a list of severities and codes",
            hint="see `analyze rules`",
        )
    return _as_list(value)


def _limit(table: Mapping[str, Any], key: str, location: str) -> int | None:
    value = table.get(key)
    if value is None:
        return None
    if not _is_int(value) or value < 0:
        raise UsageError(
            f"{location} {key} must be a whole number from 0, not {reprlib.repr(value)}",
            hint=f"write `{key} = 0`",
        )
    return int(value)


def _time(table: Mapping[str, Any], key: str, location: str) -> float | None:
    value = table.get(key)
    return None if value is None else _latency(value, where=f"{location} {key}")


def _latency(value: object, *, where: str) -> float:
    """A limit as a file writes it: a number of TOML has no unit, as a text of figures alone has none."""
    if not isinstance(value, str) and not _is_number(value):
        raise UsageError(f"{where} must be a latency, not {reprlib.repr(value)}", hint='write it like "20ms"')
    return latency_limit(str(value), where=where)


def _above_zero(table: Mapping[str, Any], key: str, location: str) -> float | None:
    value = table.get(key)
    return None if value is None else above_zero(value, where=f"{location} {key}")


def above_zero(value: object, *, where: str) -> float:
    """A number above zero.

    Raises:
        UsageError: It is none.
    """
    # A bool is an int in Python: `true` is no number here.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise UsageError(
        f"{where} must be a number above zero, not {reprlib.repr(value)}", hint="write it like 500"
    )


def _latencies(value: object, location: str) -> Mapping[str, float]:
    """``max-latency`` is one duration, or a table of them by plan."""
    where = f"{location} max-latency"
    if value is None:
        return NO_OPTIONS
    if not isinstance(value, Mapping):
        return {"": _latency(value, where=where)}  # the target's plan, known when the model is
    for name in value:
        if name not in PLAN_NAMES:
            raise _unknown_key(where, str(name), PLAN_NAMES)
    return {str(name): _latency(limit, where=f"{where}.{name}") for name, limit in value.items()}


def _baseline_path(value: object, path: Path, location: str) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise UsageError(
            f"{location} baseline must be a path", hint='write `baseline = "analyzer-baseline.json"`'
        )
    return _inside(value, path, f"{location} baseline")


def _ignores(value: object, location: str) -> Iterable[Ignore]:
    if not isinstance(value, list):
        raise UsageError(f"{location} ignore must be a list", hint='write `ignore = ["A202"]`')
    for item in value:
        if isinstance(item, str):
            yield Ignore(code=item.upper())
        elif isinstance(item, Mapping):
            yield _ignore(item, f"{location} ignore")
        else:
            raise UsageError(
                f"{location} ignore: {reprlib.repr(item)} is no entry",
                hint='write "A202" or { code = "A101", … }',
            )


def _ignore(item: Mapping[str, Any], where: str) -> Ignore:
    keys = ("code", "operator", "reason")
    for key, value in item.items():
        if key not in keys:
            raise _unknown_key(where, str(key), keys)
        if not _is_text(value):
            raise UsageError(
                f"{where}.{key} must be a text, not {reprlib.repr(value)}", hint="put it in quotes"
            )
    if "code" not in item:
        raise UsageError(
            f"{where}: an entry has no code", hint='write { code = "A101", operator = "*", reason = "…" }'
        )
    return Ignore(code=item["code"].upper(), operator=item.get("operator", "*"), reason=item.get("reason", ""))
