"""The registry of rules: a code, a severity, a documented pure function that yields what it found.

A rule's docstring is its documentation (``analyze rules A101`` prints it): a title, then the sections
``What``, ``Why``, ``Fix`` and ``Example``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import dedent

from analyzer.checks.settings import CheckSettings, Severity
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis, OperatorResult, Where
from analyzer.record.baseline import Baseline
from analyzer.text import nearest

SECTIONS = ("What", "Why", "Fix", "Example")
_CODE = re.compile(r"A[1-9]\d\d")
_SECTION = re.compile(rf"^({'|'.join(SECTIONS)}):[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a rule: an analysis, the user's limits, and the baseline if there is one.

    ``renew`` is the command that writes the baseline, ``changed`` the lines of code since it was written.
    ``ignores`` says whether settings or a comment set a code of an operator aside.
    """

    analysis: Analysis
    settings: CheckSettings
    baseline: Baseline | None = None
    renew: str = "analyze check MODEL --update-baseline"
    changed: tuple[tuple[Where, ...], ...] = ()
    ignores: Callable[[str, OperatorResult], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """The result of a rule.

    Attributes:
        message: What is wrong, in one sentence with its figures.
        fix: What to do about it.
        operator: The operator it is about, None for the model.
        source: Its line, where that is not the operator's.
        seconds, bytes: What it costs per inference; None where not known.
        severity: Where it differs from the rule's.
        certain: False where the threshold lies inside the figure's interval.
        device: The slug of the further GPU that it is about, empty for the record's own or all.
    """

    message: str
    fix: str
    operator: OperatorResult | None = None
    source: Where | None = None
    seconds: float | None = None
    bytes: int | None = None
    severity: Severity | None = None
    certain: bool = True
    device: str = ""


Check = Callable[[Subject], Iterator[Diagnostic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRule:
    """A rule of the gate: its documentation in parts, and its function.

    The first digit of a code (``A101``) is its family; a name is a few words with hyphens (``no-cuda-kernel``).
    The severity holds unless a finding says otherwise.
    """

    code: str
    name: str
    severity: Severity
    title: str
    what: str
    why: str
    fix: str
    example: str
    check: Check


_RULES: dict[str, CheckRule] = {}

FAMILIES = {
    "A1": "placement",
    "A2": "time",
    "A3": "coverage",
    "A4": "memory",
    "A5": "fusion and precision",
    "A6": "budgets and baseline",
    "A7": "loading and correctness",
}


def rule(code: str, name: str, severity: Severity) -> Callable[[Check], Check]:
    """Register a function as the rule of this code.

    Raises:
        ValueError: The code is malformed or taken, or the docstring lacks a section.
    """

    def register(check: Check) -> Check:
        if not _CODE.fullmatch(code) or code[:2] not in FAMILIES:
            raise ValueError(f"{code} is no code of a rule")
        # Users write codes and names into their settings: neither may ever mean two rules.
        if code in _RULES or any(name == other.name for other in _RULES.values()):
            raise ValueError(f"the code {code} or the name {name} is taken")
        title, parts = _documentation(check)
        _RULES[code] = CheckRule(code=code, name=name, severity=severity, title=title, check=check, **parts)
        return check

    return register


def rules() -> tuple[CheckRule, ...]:
    """Return all rules, by code."""
    return tuple(_RULES[code] for code in sorted(_RULES))


def find(code: str) -> CheckRule:
    """Return the rule of this code or name, in any case.

    Raises:
        UsageError: There is none; the hint names the nearest.
    """
    text = code.strip().lower()
    for candidate in _RULES.values():
        if text in (candidate.code.lower(), candidate.name):
            return candidate
    # Three letters are in half of all names.
    parts = (one.name for one in rules() if len(text) > 3 and text in one.name)
    raise _unknown(code, "", next(parts, None))


def require_known(prefix: str, where: str) -> None:
    """Refuse a code, or the beginning of one, that belongs to no rule.

    Raises:
        UsageError: No rule's code begins like this.
    """
    if not prefix or not any(code.startswith(prefix) for code in _RULES):
        raise _unknown(prefix, f"{where}: ")


def _unknown(text: str, where: str, otherwise: str | None = None) -> UsageError:
    word = text.strip()
    # The code with the most equal characters at the same places, where there are enough of them: "A1O1" shares
    # three with A101; of a short text ("A9") two are enough to guess by.
    equal = {code: sum(a == b for a, b in zip(code, word.upper(), strict=False)) for code in sorted(_RULES)}
    best = max(equal, key=equal.__getitem__)
    like_code = equal[best] >= (2 if len(word) <= 3 else 3)
    meant = best if like_code else nearest(word.lower(), [one.name for one in rules()]) or otherwise
    hint = f"Did you mean {meant}?" if meant else "`analyze rules` lists them"
    return UsageError(f"{where}there is no rule {text!r}", hint=hint)


def _documentation(check: Check) -> tuple[str, dict[str, str]]:
    lines = (check.__doc__ or "").strip().splitlines()
    # Python 3.13 strips a docstring's indentation when it compiles, older ones do not: both read alike here.
    body = "\n".join(line.removeprefix("    ") for line in lines[1:])
    pieces = _SECTION.split(body)
    text_by_section = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    missing = [name for name in SECTIONS if not text_by_section.get(name, "").strip()]
    if not lines or missing:
        raise ValueError(f"the docstring of {check.__name__} lacks {', '.join(missing) or 'a title'}")
    return lines[0], {name.lower(): dedent(text_by_section[name].rstrip()).strip() for name in SECTIONS}
