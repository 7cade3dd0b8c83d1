"""Run all rules over an analysis; settings decide on severities and on what is set aside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from analyzer.checks.registry import CheckRule, Diagnostic, Subject, find, require_known, rules
from analyzer.checks.settings import SEVERITIES, CheckSettings, Ignore, Severity
from analyzer.errors import UsageError
from analyzer.record.analysis import SCHEMA_VERSION, Analysis, Finding, OperatorResult
from analyzer.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the rules found, and what of it the settings set aside."""

    findings: tuple[Finding, ...]
    ignored: tuple[Finding, ...] = ()


def run(
    analysis: Analysis, settings: CheckSettings | None = None, *, baseline: Analysis | None = None
) -> tuple[Finding, ...]:
    """Return the findings of an analysis that the settings do not set aside, by code and operator."""
    return judge(analysis, settings, baseline=baseline).findings


def judge(
    analysis: Analysis, settings: CheckSettings | None = None, *, baseline: Analysis | None = None
) -> Judgement:
    """Run every rule; findings come by code, then by operator.

    Figures may not rise above those of ``baseline``.

    Raises:
        UsageError: The settings name a rule that does not exist, or the baseline is of another model.
    """
    settings = settings or CheckSettings()
    require_codes(settings)
    if baseline is not None:
        require_comparable(baseline, analysis)
    subject = Subject(analysis=analysis, settings=settings, baseline=baseline)
    return _sorted_out(
        ((rule, diagnostic) for rule in rules() for diagnostic in _gathered(tuple(rule.check(subject)))),
        settings,
    )


def judge_failure(message: str, fix: str, settings: CheckSettings) -> Judgement:
    """Return the finding of a fleet's model that has no record."""
    return _sorted_out([(find("A703"), Diagnostic(message=message, fix=fix))], settings)


def _sorted_out(yielded: Iterable[tuple[CheckRule, Diagnostic]], settings: CheckSettings) -> Judgement:
    findings: list[Finding] = []
    ignored: list[Finding] = []
    for rule, diagnostic in yielded:
        # Severity first: a finding that is set aside is shown as what it would have been.
        finding = _finding(rule, diagnostic, settings)
        entry = _ignored_by(rule.code, diagnostic.operator, settings.ignore)
        if entry is None:
            findings.append(finding)
        else:
            ignored.append(replace(finding, reason=entry.reason))
    return Judgement(findings=tuple(findings), ignored=tuple(ignored))


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


def require_comparable(baseline: Analysis, analysis: Analysis) -> None:
    """Refuse a baseline whose figures are no measure for this analysis.

    The same model name, batch, mode and devices are required; opset and precision may differ, since a change of
    them is what a baseline is there to notice.

    Raises:
        UsageError: They are not the same.
    """
    # Another schema may count otherwise: a rise would then be the program's, not the model's.
    if baseline.schema_version != SCHEMA_VERSION:
        raise UsageError(
            f"the baseline has schema version {baseline.schema_version}, this program writes {SCHEMA_VERSION}",
            hint="write it anew with --update-baseline",
        )
    both = (baseline, analysis)
    for what, before, after in (
        ("model", baseline.model.name, analysis.model.name),
        ("batch", baseline.model.batch, analysis.model.batch),
        ("mode", *("training" if one.model.training else "inference" for one in both)),
        ("CPU", baseline.devices.cpu.slug, analysis.devices.cpu.slug),
        ("GPU", *("none" if one.devices.gpu is None else one.devices.gpu.slug for one in both)),
    ):
        if before != after:
            raise UsageError(
                f"the baseline is of another {what}: {before}, and this check is of {after}",
                hint="choose the right baseline, or write it anew with --update-baseline",
            )


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
