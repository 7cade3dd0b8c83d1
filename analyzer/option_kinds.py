"""Options, kinds of their values, and groups of options (leaf: imports only errors and text).

A *kind* (a duration, names, a share) is one object that says how a value is read from TOML, from the command
line and from Python's keywords. A *group* is a class whose attributes are declared by options; its instances
hold the converted values. ``analyzer.options`` declares them.

No dataclasses: ``analyze --help`` imports the declarations and takes 85 ms in all; dataclasses of all groups
would take 20 ms more.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple, Self

from analyzer.errors import UsageError
from analyzer.text import did_you_mean, duration, latency_limit, share

Command = Literal["run", "check", "render", "generate", "capacity", "apply", "fleet"]
SettingsTable = Literal["", "tool.analyzer", "tool.analyzer.check"]

# The opset of least predicted time.
AUTO = "auto"

# Read-only, as a default of a NamedTuple is one object for all options.
_NOTHING: Mapping[str, str] = MappingProxyType({})
# Of a whole number more digits than these are over 64 bits; Python reads no number of thousands.
_LONGEST_WHOLE = 20
# Of a number nothing larger is ever meant: it stays a number where it is multiplied.
_MOST = 2**63


class Option(NamedTuple):
    """One option of the command line.

    Attributes:
        name: As users write it, without its dashes; the key in the settings file too.
        kind: What its value is.
        help: What ``--help`` says.
        commands: Which commands take it.
        metavar: What stands for its value in the help.
        default: Its converted value where it is left out.
        question: Whether it is part of what is asked: with another value the answer may be another.
        settings: In which table of pyproject.toml it stands, empty where in none.
        is_keyword: Whether the Python functions of its commands take it.
        switch: Whether it is written ``--name/--no-name``.
        helps: The help of single commands, where it is another.
        defaults: What a command takes where nothing is given.
        spellings: Other names that people type on the command line.
        choices: The names that it may be.
        least, most: Bounds of a number.
        hint: What to write, in an error.
        after: The option behind which the help lists it, where that is not the one declared before it.
    """

    name: str
    kind: OptionKind
    help: str
    commands: tuple[Command, ...] = None  # type: ignore[assignment]  # until its group gives them
    metavar: str | None = None
    default: Any = None
    question: bool = True
    settings: SettingsTable = "tool.analyzer"
    is_keyword: bool = True
    switch: bool = False
    helps: Mapping[str, str] = _NOTHING
    defaults: Mapping[str, str] = _NOTHING
    spellings: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: float = 1
    most: float = _MOST
    hint: str | None = None
    after: str = ""

    @property
    def keyword(self) -> str:
        """The keyword of ``analyze()`` or of its sisters."""
        name = self.name.removeprefix("no-") if self.kind is NEGATION else self.name
        return name.replace("-", "_")

    def help_for(self, command: Command) -> str:
        """Return the text of a command's ``--help``."""
        return self.helps.get(command, self.help)

    def convert(self, value: Any, where: str = "") -> Any:
        """Return the value that the program works with.

        Args:
            value: From TOML, the command line or Python.
            where: The option, as an error names it; on the command line by default.

        Raises:
            UsageError: A value that cannot be right.
        """
        return self.kind.convert(value, self, where or f"--{self.name}")

    def refuse(self, value: object, where: str) -> UsageError:
        """Return the error for a value of another kind."""
        hint = f"Write it like {self.kind.example}." if self.kind.example else self.hint
        return UsageError(
            f"{where} must be {self.kind.words}, not {reprlib.repr(value)}",
            hint=hint or f"Change `{self.name}` there.",
        )


class OptionKind(NamedTuple):
    """A kind of value.

    Attributes:
        words: What a value must be, in an error and in the reference.
        python: The type of the keyword, as a signature shows it.
        types: Of a value of TOML.
        convert: What the program works with; takes the option and its name in an error as well.
        lists, tables: Whether TOML may have a list or a table of such values.
        is_flag: Whether it takes no value on the command line.
        repeats: Whether it is given once for each value.
        names: What its text names: a ``file``, an ``output`` (also a folder or standard output), a ``device``.
        example: What to write, in an error.
        default: The converted value where nothing is given.
    """

    words: str
    python: str
    types: tuple[type, ...]
    convert: Callable[[Any, Option, str], Any]
    lists: bool = False
    tables: bool = False
    is_flag: bool = False
    repeats: bool = False
    names: Literal["", "file", "output", "device"] = ""
    example: str = ""
    default: Any = None

    def accepts(self, value: Any) -> bool:
        """Return whether a value of TOML may be one; its conversion says the rest."""
        several = [value]
        if self.lists and isinstance(value, list):
            several = value
        elif self.tables and isinstance(value, dict):
            several = list(value.values())
        # By the type itself: in Python `true` is an int too, and `batch = true` must not be a batch of 1.
        return bool(several) and all(
            type(one) in self.types
            and (bool(one.strip()) if isinstance(one, str) else math.isfinite(one))  # TOML has nan and inf
            for one in several
        )


def option(name: str, kind: OptionKind, text: str, commands: Any = None, **more: Any) -> Any:
    """Declare an attribute of a group; the class says which type its converted value has.

    Args:
        name: With what stands for its value in the help: ``"batch N[,N...]"``.
        kind: What its value is.
        text: What ``--help`` says.
        commands: Which commands take it; the group's by default.
        more: Further attributes of ``Option``.
    """
    name, _, metavar = name.partition(" ")
    return Option(name, kind, text, commands, metavar or None, **{"default": kind.default, **more})


class OptionGroup(SimpleNamespace):
    """Converted values that belong together, immutable.

    A class attribute that is declared by an option becomes an attribute of the instances, with the option's
    default where it is left out; so do other attributes. Keywords of the class hold for all of its options.
    """

    declared: ClassVar[Mapping[str, Option]] = MappingProxyType({})
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init_subclass__(cls, **common: Any) -> None:
        """Make options of the declarations of a class."""
        own = {name: vars(cls)[name] for name in vars(cls).get("__annotations__", ())}
        usual = Option._field_defaults
        options = {}
        for name, one in own.items():
            if isinstance(one, Option):
                missing = {key: value for key, value in common.items() if getattr(one, key) == usual[key]}
                options[name] = one._replace(**missing)
        cls.declared = {**cls.declared, **options}
        cls.defaults = {**cls.defaults, **own, **{name: one.default for name, one in options.items()}}

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - self.defaults.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        super().__init__(**{**self.defaults, **values})

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change a value."""
        raise AttributeError(f"{type(self).__name__} is immutable")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the values of keywords; None is an option left out.

        Raises:
            UsageError: A value that cannot be right.
        """
        values = {name: (one, given.get(one.keyword)) for name, one in cls.declared.items()}
        return cls(**{name: one.convert(value) for name, (one, value) in values.items() if value is not None})

    def replace(self, **changes: Any) -> Self:
        """Return the same values but for these."""
        return type(self)(**{**vars(self), **changes})


def one_of(value: object, known: tuple[str, ...], where: str) -> str:
    """Return one of the known words, in any case.

    Raises:
        UsageError: It is none of them; the hint names the nearest.
    """
    word = str(value).strip().lower()
    if word in known:
        return word
    hint = did_you_mean(word, known, f"One of {', '.join(known)}.")
    raise UsageError(f"{where} {value}: no such value.", hint=hint)


def left_out(value: object) -> bool:
    """Return whether a value of the command line or of a keyword is none; 0 is a value."""
    return value is None or value is False or value == ()


def parts(value: Any) -> list[Any]:
    """Return the parts between commas, or the items of a list."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)


def _is_number(value: object) -> bool:
    # In Python `true` is an int too, and TOML has nan and inf, of which no option makes sense.
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _whole(value: Any, option: Option, where: str) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if not _is_number(number) or number != int(number) or not option.least <= number <= option.most:
        bounds = (
            f"from {option.least:,} to {option.most:,}" if option.most < _MOST else f"from {option.least:,}"
        )
        raise UsageError(f"{where} {value}: must be a whole number {bounds}.", hint=option.hint)
    return int(number)


def _opset(value: Any, option: Option, where: str) -> int | str:
    text = str(value).strip()
    if text == AUTO:
        return text
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{where} {value}: an opset is a whole number.", hint=option.hint)
    return int(text)


def _wholes(value: Any, option: Option, where: str) -> tuple[int, ...]:
    result = []
    for part in [value] if isinstance(value, int) else parts(value):
        text = str(part)
        # The sign is let through, so that "-3" gets the message of any other number.
        if not text.removeprefix("-").isdecimal() or len(text) > _LONGEST_WHOLE or int(text) < option.least:
            raise UsageError(
                f"{where} {text}: a {option.name} is a whole number from {option.least}.", hint=option.hint
            )
        result.append(int(text))
    if len(result) > option.most:
        raise UsageError(
            f"{where}: {len(result)} {option.name}es are too many.", hint=f"At most {option.most}."
        )
    return tuple(dict.fromkeys(result))  # the first is the report's: the order stays


def _number(value: Any, option: Option, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where} {value}: no number.", hint=option.hint) from None
    if not option.least <= number <= option.most:
        raise UsageError(
            f"{where} {number:g}: must be from {option.least:f} to {option.most:,.0f}.", hint=option.hint
        )
    return number


def _duration(value: Any, option: Option, where: str) -> float:
    seconds = duration(value, where=where)
    if seconds > option.most:
        raise UsageError(f"{where} {value}: must be at most {option.most:g} s.", hint=option.hint)
    return seconds


def _latency(value: Any, option: Option, where: str) -> float:
    # 0 is a delay, and the usual one, but no limit.
    is_zero = str(value).strip() in ("0", "0s", "0ms", "0.0") and not isinstance(value, bool)
    return 0.0 if is_zero and not option.least else latency_limit(value, where=where)


def _latencies(value: Any, option: Option, where: str) -> Mapping[str, float]:
    # Of a limit alone the plan is the target's, known when the model is.
    limits: dict[str, Any] = value if isinstance(value, dict) else {"": value}
    for plan in limits:
        if plan and plan not in option.choices:
            hint = did_you_mean(plan, option.choices, f"It knows: {', '.join(option.choices)}.")
            raise UsageError(f"{where} has an unknown key `{plan}`", hint=hint)
    # A number of TOML has no unit, as a text of figures alone has none.
    return {
        plan: latency_limit(str(limit), where=f"{where}.{plan}" if plan else where)
        for plan, limit in limits.items()
    }


def _share(value: Any, option: Option, where: str) -> float:
    result = share(value, where=where)
    if result > option.most:
        raise UsageError(f"{where} {value}: too much.", hint="20% is a fifth.")
    return result


def _text(value: Any, option: Option, where: str) -> Any:
    return one_of(value, option.choices, where) if option.choices else value or option.default


def _names(value: Any, option: Option, where: str) -> tuple[str, ...]:
    names = parts(value)
    if not names or not all(names):
        raise UsageError(f"{where} needs a name.", hint=option.hint)
    return tuple(
        dict.fromkeys(one_of(name, option.choices, where) if option.choices else name for name in names)
    )


def _repeated(value: Any, *_: Any) -> tuple[str, ...]:
    # `--no-state` is state=False, a keyword that takes names too.
    return () if isinstance(value, bool) else (value,) if isinstance(value, str) else tuple(value)


def _above_zero(value: Any, option: Option, where: str) -> float:
    if not _is_number(value) or value <= 0:
        raise option.refuse(value, where)
    return float(value)


_TEXT_OR_NUMBER = (int, float, str)
FLAG = OptionKind("true or false", "bool", (bool,), lambda value, *_: value, is_flag=True, default=False)
# It turns a keyword off: `--no-run` is `run=False`.
NEGATION = FLAG._replace(convert=lambda value, *_: value is not False, default=True)
WHOLE = OptionKind("a whole number", "int | None", (int,), _whole)
OPSET = OptionKind('a whole number or "auto"', "int | str | None", (int, str), _opset)
WHOLES = OptionKind(
    "a whole number or a list of them", "int | str | Sequence[int] | None", (int, str), _wholes, lists=True
)
NUMBER = OptionKind("a number", "float | None", (int, float), _number)
ABOVE_ZERO = OptionKind("a number above zero", "float | None", (int, float), _above_zero, example="500")
DURATION = OptionKind('a duration ("20ms" or seconds)', "float | str | None", _TEXT_OR_NUMBER, _duration)
LATENCY = OptionKind("a latency", "float | str | None", _TEXT_OR_NUMBER, _latency, example='"20ms"')
# One limit, or one for each of the option's choices.
LATENCIES = LATENCY._replace(tables=True, convert=_latencies, default=MappingProxyType({}))
SHARE = OptionKind('a share ("20%" or 0.2)', "float | str | None", _TEXT_OR_NUMBER, _share)
TEXT = OptionKind("a text", "str | None", (str,), _text)
DEVICE = TEXT._replace(names="device")
OUTPUT = TEXT._replace(names="output")
PATH = OptionKind(
    "a path within the folder of the settings",
    "str | PathLike[str] | None",
    (str,),
    lambda value, *_: Path(value) if value else None,
    names="file",
)
NAMES = OptionKind("a text or a list of texts", "str | Sequence[str] | None", (str,), _names, lists=True)
DEVICES = NAMES._replace(names="device")
# For values that hold commas.
REPEATED = OptionKind(
    "a text or a list of texts", "str | Sequence[str]", (str,), _repeated, lists=True, repeats=True, default=()
)
