"""The question in a record, and the command line that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from analyzer.option_kinds import LATENCIES, LATENCY, NEGATION, PATH, Command, Option
from analyzer.options import OPTIONS, taken_by

Texts = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A command with what was given to it, by the user or by the settings file; nothing of the machine.

    Attributes:
        command: ``run``, ``check``, ``generate`` or ``capacity``.
        model: MODEL as the command line names it, a file from its repository or else from the working folder;
            None for one that has no name there, an ``nn.Module``.
        options: By long option, the values as they are written; none for a flag.
        stand_ins: The same, of options left out, where what the machine put in their place has a name.
    """

    command: str
    model: str | None
    options: Texts = field(default_factory=dict)
    stand_ins: Texts = field(default_factory=dict)

    @property
    def uses_this_cpu(self) -> bool:
        """Return whether the CPU of the decision is that of the machine at hand."""
        return "cpu" not in self.options and (self.command != "check" or "run" in self.options)


def written(
    command: Command, given: Mapping[str, Any], show_path: Callable[[str], str] = str
) -> dict[str, tuple[str, ...]]:
    """Return options as they are written, in the order of the table; what is None or empty was not given.

    Args:
        command: Only its options are taken.
        given: Values by keyword.
        show_path: How a path is written.
    """
    options = {}
    for option in taken_by(command):
        values = _texts(option, given.get(option.keyword), show_path) if option.question else None
        if values is not None:
            options[option.name] = values
    return options


def _texts(option: Option, value: Any, show_path: Callable[[str], str]) -> tuple[str, ...] | None:
    """Return the values of an option, None where it was not given."""
    kind = option.kind
    if kind.is_flag:
        # `--no-run` is run=False: None, a keyword left out, is not that.
        return () if (value is False if kind is NEGATION else bool(value)) else None
    # `--no-state` is state=False, `--state` the same keyword with names.
    if value is None or isinstance(value, bool) or value in ("", [], ()):
        return None
    if kind in (LATENCY, LATENCIES):
        # A number is Python's, of seconds: on the command line it needs its unit.
        return (value if isinstance(value, str) else f"{value}s",)
    if kind is PATH:
        return (show_path(str(value)),)
    several = tuple(map(str, value if isinstance(value, (list, tuple)) else [value]))
    return several if kind.repeats else (",".join(several),)


def amended(invocation: Invocation, options: Texts, *, without: Iterable[str] = ()) -> Invocation:
    """Return the invocation with these options in place of its own of the same names, and some left out."""
    dropped = {*options, *without}
    merged = {**{name: texts for name, texts in invocation.options.items() if name not in dropped}, **options}
    return replace(
        invocation,
        # In the order of the table, whatever came when: the same question is the same record and the same line.
        options={option.name: merged[option.name] for option in OPTIONS if option.name in merged},
        stand_ins={name: texts for name, texts in invocation.stand_ins.items() if name not in dropped},
    )


def command_line(invocation: Invocation) -> str:
    """Return the command on one line, quoted for a shell; empty where no command line asks the same.

    A record may come from anywhere: an option that the command does not take makes no line.
    """
    given = {**invocation.stand_ins, **invocation.options}
    command = next((name for name in _COMMANDS if name == invocation.command), None)
    if command is None or not invocation.model or {*given} - {option.name for option in taken_by(command)}:
        return ""
    # A file called `-x.py` is no option.
    model = f"./{invocation.model}" if invocation.model.startswith("-") else invocation.model
    words = ["analyze", *([] if command == "run" else [command]), model]
    for option in taken_by(command):
        if option.name in given:
            name, values = f"--{option.name}", given[option.name]
            words += [name] if option.kind.is_flag else [word for value in values for word in (name, value)]
    return " ".join(map(_quoted, words))


def applied(
    invocation: Invocation,
    *,
    gpu: str | None,
    batch: int | None,
    folder: str,
    plan: str = "",
    change: Texts = MappingProxyType({}),
) -> str:
    """Return command that applies the plan of what was asked, on one line; empty where no command line does.

    Args:
        invocation: Of a run.
        gpu: The device of the plan, by its slug; None for the CPU alone.
        batch: Of the report; None where its inputs have none.
        folder: Where to write.
        plan: Which plan; empty for the verdict's.
        change: Further options, in place of those that were given.
    """
    taken = {option.name for option in taken_by("apply") if option.question}
    options = {name: texts for name, texts in invocation.options.items() if name in taken}
    # One session is for one device and one batch.
    options["gpu"] = (gpu or "none",)
    if plan:
        options["plan"] = (plan,)
    if batch is not None:
        options["batch"] = (str(batch),)
    else:
        options.pop("batch", None)
    options |= change
    if invocation.command != "run":
        return ""
    line = command_line(Invocation(command="apply", model=invocation.model, options=options))
    return line and f"{line} --output {_quoted(folder)}"


# Not `render`: a record that was decided anew has its analysis' invocation, with what was given to render.
_COMMANDS: tuple[Command, ...] = ("run", "check", "generate", "capacity", "apply")


def _quoted(word: str) -> str:
    """Return a word quoted for a shell; control characters as in POSIX.1-2024, ``$'…'``."""
    if word.isprintable():
        return shlex.quote(word)
    # A line break or a control character, quoted by shlex alone, would break the one line or hide in it.
    shown = (char if char.isprintable() else _escape(char) for char in word)
    return "$'" + "".join({"\\": "\\\\", "'": "\\'"}.get(char, char) for char in shown) + "'"


def _escape(char: str) -> str:
    # Octal has three digits at most: one after them stays itself. Of `\x` POSIX leaves open what a third means.
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
