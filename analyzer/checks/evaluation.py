"""Run all rules over an analysis; settings decide on severities and on what is set aside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from analyzer.checks.baseline import Comment, comments_on, faults_of, require_comparable
from analyzer.checks.device_answers import OVER_SLO
from analyzer.checks.registry import CheckRule, Diagnostic, Subject, find, require_known, rules
from analyzer.checks.settings import SEVERITIES, CheckSettings, Ignore, Severity
from analyzer.record.analysis import Analysis, Finding, OperatorResult, Where
from analyzer.record.baseline import Baseline
from analyzer.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The findings of the rules, and those that the settings suppress."""

    findings: tuple[Finding, ...]
    ignored: tuple[Finding, ...] = ()


def run(
    analysis: Analysis, settings: CheckSettings | None = None, *, baseline: Baseline | None = None
) -> tuple[Finding, ...]:
    """Return the findings of an analysis that nothing sets aside, by code and operator."""
    result, answer = judge(analysis, settings, baseline=baseline).findings, analysis.answer
    # A gate is about every GPU that was named. An analysis ranks them, and says why others are not the answer.
    meets = answer is not None and answer.meets
    return tuple(one for one in result if not (meets and one.code == OVER_SLO))


def judge(
    analysis: Analysis,
    settings: CheckSettings | None = None,
    *,
    commented: Iterable[Where] = (),
    **compared: Any,
) -> Judgement:
    """Run every rule; findings come by code, then by operator.

    Args:
        analysis: The record.
        settings: What the user allows.
        commented: Lines of the model's code with comments, besides those of its operators.
        compared: ``baseline``, ``renew`` and ``changed`` of the rules' subject.

    Raises:
        UsageError: The settings name a rule that does not exist, or the baseline is of another model.
    """
    settings = settings or CheckSettings()
    require_codes(settings)
    comments = comments_on((*(operator.source for operator in analysis.operators), *commented))

    def ignores(code: str, operator: OperatorResult) -> bool:
        alone = [(find(code), Diagnostic(message="", fix="", operator=operator))]
        return bool(_sorted_out(alone, settings, comments)[0].ignored)

    subject = Subject(analysis=analysis, settings=settings, ignores=ignores, **compared)
    if subject.baseline is not None:
        require_comparable(subject.baseline, analysis)
    yielded = [(rule, one) for rule in rules() for one in _gathered(tuple(rule.check(subject)))]
    judgement, used = _sorted_out(yielded, settings, comments)
    wrong = [one for place, comment in comments.items() for one in faults_of(comment, used[place])]
    of_comments, _ = _sorted_out([(find("A706"), one) for one in wrong], settings, {})
    return Judgement(
        findings=(*_one_a_cause(judgement.findings), *of_comments.findings),
        ignored=judgement.ignored + of_comments.ignored,
    )


def judge_failure(message: str, fix: str, settings: CheckSettings) -> Judgement:
    """Return the finding of a model that could not be analysed."""
    return _sorted_out([(find("A703"), Diagnostic(message=message, fix=fix))], settings, {})[0]


def _sorted_out(
    yielded: Iterable[tuple[CheckRule, Diagnostic]],
    settings: CheckSettings,
    comments: Mapping[tuple[str, int], Comment],
) -> tuple[Judgement, Mapping[tuple[str, int], set[str]]]:
    """Return findings and ignored ones, and by which of their codes comments set something aside."""
    findings: list[Finding] = []
    ignored: list[Finding] = []
    used: dict[tuple[str, int], set[str]] = defaultdict(set)
    for rule, diagnostic in yielded:
        # Severity first: a finding that is set aside is shown as what it would have been.
        finding = _finding(rule, diagnostic, settings)
        where = diagnostic.source or (diagnostic.operator.source if diagnostic.operator is not None else None)
        place = (where.file, where.line) if where is not None else ("", 0)
        comment = comments.get(place)
        code = comment.covers(rule.code) if comment is not None else ""
        used[place].add(code)
        entry = _ignored_by(rule.code, diagnostic.operator, settings.ignore)
        if comment is not None and code:
            ignored.append(replace(finding, reason=comment.reason))
        elif entry is not None:
            ignored.append(replace(finding, reason=entry.reason))
        else:
            findings.append(finding)
    return Judgement(findings=tuple(findings), ignored=tuple(ignored)), used


def _one_a_cause(findings: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield the findings; what rose as an operator moved to the CPU is said where that is an error."""
    causes = {one.operator for one in findings if one.code == "A101" and one.severity == "error"}
    rises = {one.operator: one for one in findings if one.code == "A611" and one.operator in causes}
    for one in findings:
        rise = rises.get(one.operator)
        if rise is not None and one.code == "A101":
            rose = rise.message.partition("; most by ")[0]
            yield replace(one, message=f"{one.message}; since the baseline {rose}")
        elif one is not rise:
            yield one


def fails(findings: Iterable[Finding], settings: CheckSettings) -> tuple[Finding, ...]:
    """Return the findings that make the check fail: those of ``fail-on``'s severity or a graver one."""
    if settings.fail_on == "never":
        return ()
    # SEVERITIES runs from grave to slight.
    failing = SEVERITIES[: SEVERITIES.index(settings.fail_on) + 1]
    return tuple(finding for finding in findings if finding.severity in failing)


def require_codes(settings: CheckSettings) -> None:
    """Refuse settings that name a rule that does not exist.

    Raises:
        UsageError: With the nearest code as a hint.
    """
    for key, codes in (("fail-on", settings.raise_to_error), ("warn-on", settings.raise_to_warning)):
        for code in codes:
            require_known(code, key)
    for entry in settings.ignore:
        require_known(entry.code, "ignore")


# Of one rule on so many further GPUs each has a finding of its own; of more, as `--gpu all` has, one names all.
_MOST_OF_ONE_RULE = 8


def _gathered(yielded: tuple[Diagnostic, ...]) -> Iterator[Diagnostic]:
    """Yield the diagnostics of a rule, one in place of many that say the same of further GPUs."""
    further = [diagnostic for diagnostic in yielded if diagnostic.device]
    if len(further) <= _MOST_OF_ONE_RULE:
        yield from yielded
        return
    yield from (diagnostic for diagnostic in yielded if not diagnostic.device)
    for certain in (True, False):
        alike = [diagnostic for diagnostic in further if diagnostic.certain == certain]
        if alike:
            slugs = [diagnostic.device for diagnostic in alike]
            others = f"; likewise with {listed(slugs[1:])}" if len(slugs) > 1 else ""
            yield replace(alike[0], message=f"{alike[0].message}{others}", device=",".join(slugs))


def _finding(rule: CheckRule, diagnostic: Diagnostic, settings: CheckSettings) -> Finding:
    return Finding(
        code=rule.code,
        severity=_severity(rule, diagnostic, settings),
        operator=None if diagnostic.operator is None else diagnostic.operator.index,
        message=diagnostic.message,
        fix=diagnostic.fix,
        # Of a record that contradicts itself a difference may be below 0: that is no cost.
        seconds=None if (diagnostic.seconds or 0.0) < 0 else diagnostic.seconds,
        bytes=diagnostic.bytes,
        certain=diagnostic.certain,
        device=diagnostic.device,
        source=diagnostic.source,
    )


def _severity(rule: CheckRule, diagnostic: Diagnostic, settings: CheckSettings) -> Severity:
    """Return the rule's severity, raised by the settings; what is not certain stops at a warning."""
    severity = diagnostic.severity or rule.severity
    # "?" begins no code: startswith of an empty tuple would do, but is easily read as "all".
    if rule.code.startswith(settings.raise_to_warning or ("?",)) and severity == "note":
        severity = "warning"
    if rule.code.startswith(settings.raise_to_error or ("?",)):
        severity = "error"
    # A gate that fails by the width of a prediction is switched off by the first who meets it.
    if severity == "error" and not diagnostic.certain and not settings.fail_on_uncertain:
        return "warning"
    return severity


def _ignored_by(code: str, operator: OperatorResult | None, entries: Iterable[Ignore]) -> Ignore | None:
    names = () if operator is None else (operator.module, operator.name, operator.op_type)
    for entry in entries:
        # fnmatchcase, as fnmatch folds case on Windows: one settings file, one meaning everywhere.
        named = any(fnmatchcase(name, entry.operator) for name in names if name)
        if code.startswith(entry.code) and (entry.operator == "*" or named):
            return entry
    return None
