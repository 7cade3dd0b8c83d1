"""Findings as text and Markdown, with the answer of each device.

A ``Check`` is the one list that these formats and those of CI servers (``ci``) render: the findings of a model,
or of several, each with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from analyzer.checks import fails, judge_failure, rules
from analyzer.checks.baseline import Change, baseline_of, changes
from analyzer.checks.device_answers import DeviceAnswer, device_answers
from analyzer.checks.settings import SEVERITIES, CheckSettings, Severity
from analyzer.errors import AnalyzerError
from analyzer.record.analysis import TOOL, Analysis, Finding, OperatorResult, PlanResult, Tool
from analyzer.record.baseline import Baseline
from analyzer.record.batch_ranges import batch_of, has_batch
from analyzer.record.outcome import RankedWay
from analyzer.report import terminal
from analyzer.report.document import Block, Document, Headline, Section, Table, Text, items
from analyzer.report.figure_text import VERDICT_WORDS, marked, per_second
from analyzer.report.markdown import markdown, printable
from analyzer.report.summary import in_precision
from analyzer.text import loggable, plural
from analyzer.units import UNKNOWN, byte_count, dollars, factor, seconds

# Whether a limit is kept, by the 90 % interval.
_LIMIT_WORDS = {"yes": "kept", "likely": "likely kept", "unlikely": "likely missed", "no": "missed"}
_HEAD = ("Device", "Runs", "Latency", "90 % interval", "Per second", "$ per million", "Instance")
# The columns of a device without a plan.
_NONE = ("does not run", *(UNKNOWN for _ in _HEAD[2:]))


def table(analysis: Analysis) -> Table:
    """Return the CPU, then each GPU by one plan: the verdict's where that uses it, else the CUDA session's."""
    limit = analysis.verdict.slo_s
    return Table(
        title="Devices",
        head=(*_HEAD, *(() if limit is None else (f"Limit {seconds(limit)}",)), "Verdict"),
        rows=tuple(_rows(analysis)),
        figures=(2, 3, 4, 5),
        drop=(0, 3, 0, 0, 4, 1, 2, *(() if limit is None else (0,)), 0),
    )


def _rows(analysis: Analysis) -> Iterator[tuple[str, ...]]:
    answers, limit = device_answers(analysis), analysis.verdict.slo_s
    cpu = analysis.plan("cpu")
    if cpu is not None:
        # The plan's dollars are the cheapest instance's, which may have another CPU; the ranking's are not.
        own = _ranked(analysis, "cpu")
        yield (analysis.devices.cpu.name, *_cells(answers[0], cpu, own, limit, of_plan=False), "")
    for answer in answers:
        if answer.gpu is None:
            continue
        # The plan that says how long the GPU takes; None where no session can be made for it.
        plan, verdict = answer.decided, VERDICT_WORDS[answer.verdict.device]
        if plan is None or plan.name == "cpu" or not plan.operators_on_gpu:
            plan = answer.plan("gpu")
        if not any(other.fits for other in answer.plans):
            verdict = "neither fits"
        if plan is None:
            yield (answer.gpu.name, *_NONE, *(() if limit is None else (UNKNOWN,)), verdict)
        else:
            own = _ranked(analysis, "gpu", answer.gpu.slug)
            yield (answer.gpu.name, *_cells(answer, plan, own, limit), verdict)


def _cells(
    answer: DeviceAnswer,
    plan: PlanResult,
    own: RankedWay | None,
    limit: float | None,
    *,
    of_plan: bool = True,
) -> tuple[str, ...]:
    """Return a plan's cells; dollars are the ranking's, else the plan's own where it is ``of_plan``."""
    another_build = answer.wants_another_build(plan)
    usd, origin, instance = (
        (own.usd_per_million, own.usd_origin, own.instance)
        if own is not None
        else (plan.usd_per_million, plan.usd_origin, plan.instance)
        if of_plan
        else (None, "", "")
    )
    word = "" if limit is None else UNKNOWN if another_build else _LIMIT_WORDS[answer.keeps(plan, limit)]
    return (
        "no machine code" if another_build else "yes" if plan.fits else "does not fit",
        marked(seconds(plan.latency_s), plan.origin),
        plan.latency.between(seconds),
        per_second(plan.throughput_per_s),
        marked(dollars(usd), origin),
        instance or UNKNOWN,
        *((word,) if word else ()),
    )


def _ranked(analysis: Analysis, kind: Literal["cpu", "gpu"], slug: str = "") -> RankedWay | None:
    """Return the analysis's own CPU, or this GPU, at its batch; None of a record that ranks nothing."""
    return next(
        (
            one
            for one in analysis.ranking
            if one.kind == kind
            and one.named
            and one.requested
            and one.runs
            and one.batch == analysis.model.batch
            and slug in ("", one.device)
        ),
        None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFinding:
    """A finding with its place in the user's source, or else in the model's own file.

    The operator is the one that it is about, None for the model; where the file alone is known there is neither
    a line nor its text.
    """

    finding: Finding
    operator: OperatorResult | None = None
    file: str
    line: int | None = None
    code: str = ""

    @property
    def severity(self) -> Severity:
        """The finding's."""
        return self.finding.severity

    @property
    def place(self) -> str:
        """``file:line``, as editors and terminals make it a link."""
        return f"{self.file}:{self.line}" if self.line is not None else self.file

    @property
    def lines(self) -> list[str]:
        """The finding as a compiler writes it, the line of source, the cost where it is known, and the fix."""
        finding, cost = self.finding, cost_of(self.finding)
        return [
            # ``file:line: severity``: the form of compilers, which editors and terminals turn into links.
            f"{self.place}: {finding.severity} {finding.code} {finding.message}",
            *([self.code] if self.code else []),
            *([f"cost: {cost} per inference"] if cost else []),
            f"fix: {finding.fix}",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """A model as it was judged; its analysis is not held, of which a fleet may have thousands.

    ``name`` is that among several, ``model`` its own. The table of devices is None where its plans are no
    answer; ``changes`` are rows of figures that moved since the baseline, None where there is none.
    ``analysed`` says that there is a record, so that a rule without a finding is one that passed.
    ``properties`` are what SARIF says of it.
    """

    name: str
    model: str
    subject: str
    findings: tuple[PlacedFinding, ...]
    ignored: tuple[PlacedFinding, ...]
    fail_on: str
    devices: Table | None = None
    changes: tuple[tuple[str, ...], ...] | None = None
    analysed: bool = True
    properties: Mapping[str, Any] = field(default_factory=dict)

    def fails_by(self, *result: PlacedFinding) -> bool:
        """Return whether the check fails by any of these findings."""
        return bool(fails((one.finding for one in result), CheckSettings(fail_on=self.fail_on)))

    @property
    def outcome(self) -> str:
        """``passed`` or ``failed``."""
        return "failed" if self.fails_by(*self.findings) else "passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The subject of a check: a model, or ``several``, of a fleet, whose file is the name, or of a call.

    Of several, messages that stand in one list say whose they are; ``left`` models of a fleet are not done yet.
    """

    name: str
    models: tuple[CheckedModel, ...]
    several: bool = False
    left: int = 0
    tool: Tool = TOOL

    @property
    def failing(self) -> tuple[CheckedModel, ...]:
        """The models by which the check fails."""
        return tuple(model for model in self.models if model.outcome == "failed")

    @property
    def subject(self) -> str:
        """The subject in one line."""
        if not self.several:
            return self.models[0].subject
        left = f"; {plural(self.left, 'model')} not done yet" if self.left else ""
        of_fleet = f"{self.name}, " if self.name.endswith(".json") else ""
        return f"{of_fleet}{plural(len(self.models), 'model')}{left}"

    @property
    def properties(self) -> Mapping[str, Any]:
        """SARIF's properties of the run."""
        return {"models": [one.name for one in self.models]} if self.several else self.models[0].properties

    @property
    def outcome(self) -> str:
        """``passed``; of several in how many models it failed."""
        where = f" in {plural(len(self.failing), 'model')}" if self.several else ""
        return f"failed{where}" if self.failing else "passed"

    @property
    def findings(self) -> tuple[PlacedFinding, ...]:
        """All findings of all models."""
        return tuple(one for model in self.models for one in model.findings)

    def message(self, model: CheckedModel, finding: Finding) -> str:
        """Return a finding's message, behind the model's name where many models stand in one list."""
        return f"{model.name}: {finding.message}" if self.several else finding.message


def checked(
    analysis: Analysis, *, fail_on: str = "error", name: str = "", baseline: Baseline | None = None
) -> CheckedModel:
    """Return a model with the findings that its analysis holds; ``name`` is that among several."""
    model = analysis.model
    return CheckedModel(
        name=name or model.name,
        model=model.name,
        subject=subject_line(analysis),
        findings=tuple(_placed(one, analysis) for one in analysis.findings),
        ignored=tuple(_placed(one, analysis) for one in analysis.ignored),
        fail_on=fail_on,
        # Of generation the plans are a step's, and no answer.
        devices=table(analysis) if analysis.generation is None else None,
        changes=None if baseline is None else tuple(map(_row, changes(baseline, baseline_of(analysis, -1)))),
        properties={"model": model.name, "digest": model.digest, "opset": model.opset},
    )


def _row(change: Change) -> tuple[str, ...]:
    what, before, after = change.cells
    ratio = change.after / change.before if change.before else None
    moved = f"{ratio - 1:+.1%}" if ratio is not None and ratio < 2 else factor(ratio)
    return f"{what[:1].upper()}{what[1:]}", before, after, moved


def not_analysed(name: str, reference: str, error: AnalyzerError, settings: CheckSettings) -> CheckedModel:
    """Return a model that could not be analysed, with the finding that says so."""
    # They end a sentence that the formats write.
    hint = (error.hint or "see what `analyze` says of it alone").rstrip(".")
    judgement = judge_failure(error.message.rstrip("."), hint, settings)
    file = _file_of(reference)
    return CheckedModel(
        name=name,
        model=name,
        subject=f"{name}, which could not be analysed",
        findings=tuple(PlacedFinding(finding=one, file=file) for one in judgement.findings),
        ignored=tuple(PlacedFinding(finding=one, file=file) for one in judgement.ignored),
        fail_on=settings.fail_on,
        analysed=False,
    )


def check_of(subject: Analysis | Check, fail_on: str = "error") -> Check:
    """Return the check of one analysis; a check as it is."""
    if isinstance(subject, Check):
        return subject
    return Check(name=subject.model.name, models=(checked(subject, fail_on=fail_on),), tool=subject.tool)


def operator_of(finding: Finding, analysis: Analysis) -> OperatorResult | None:
    """Return the operator that a finding is about."""
    # A record of somebody else's may name an operator that it does not hold.
    if finding.operator is None or not 0 <= finding.operator < len(analysis.operators):
        return None
    return analysis.operators[finding.operator]


def _placed(finding: Finding, analysis: Analysis) -> PlacedFinding:
    operator = operator_of(finding, analysis)
    source = finding.source or (operator.source if operator is not None else None)
    if source is None:
        return PlacedFinding(finding=finding, operator=operator, file=_file_of(analysis.model.source))
    return PlacedFinding(
        finding=finding, operator=operator, file=source.file, line=source.line, code=source.code.strip()
    )


def _file_of(source: str) -> str:
    """Return the file that a reference names, without the name after the colon."""
    # The colon of a Windows drive has a path after it, which no model's name is.
    head, colon, tail = source.rpartition(":")
    return head if colon and head and not any(char in tail for char in "/\\.") else source


_Grave = TypeVar("_Grave", Finding, PlacedFinding)


def by_severity(findings: Iterable[_Grave]) -> tuple[_Grave, ...]:
    """Return the gravest first, otherwise as they came."""
    # Python's sort is stable: within a severity the rules' own order stays.
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


CHANGES_SHOWN = 5
"""Opportunities that one screen shows."""


def shown_findings(analysis: Analysis) -> tuple[Finding, ...]:
    """Return the gravest first, without those that an opportunity on the first screen tells with its gain."""
    codes = {code for one in analysis.opportunities[:CHANGES_SHOWN] for code in one.findings}
    return by_severity(one for one in analysis.findings if one.code not in codes)


def cost_of(finding: Finding) -> str:
    """Return ``1.2 ms, 64 MB`` of what is known, empty where nothing is."""
    figures = [seconds(finding.seconds)] if finding.seconds is not None else []
    if finding.bytes is not None:
        figures.append(byte_count(finding.bytes))
    return ", ".join(figures)


def rule_label(code: str) -> str:
    """Return ``A101 no-cuda-kernel``; the code alone of a rule that this version does not know."""
    name = next((rule.name for rule in rules() if rule.code == code), "")
    return f"{code} {name}".strip()


def tally(findings: Iterable[PlacedFinding]) -> str:
    """Return ``2 errors, 1 warning, 3 notes``; ``no findings``."""
    counts = dict.fromkeys(SEVERITIES, 0)
    for one in findings:
        counts[one.severity] += 1
    parts = [plural(count, name) for name, count in counts.items() if count]
    return ", ".join(parts) or "no findings"


def subject_line(analysis: Analysis) -> str:
    """Return the model, its batch and its devices in one line."""
    model, gpu = analysis.model, analysis.devices.gpu
    more = len(analysis.alternatives)
    batch = f", batch {batch_of(analysis)}" if batch_of(analysis) is not None else ""
    batch = batch if has_batch(analysis) else ", per call"
    others = f", {plural(more, 'further GPU')}" if more else ""
    cpu = analysis.devices.cpu.name
    target = f"{gpu.name}{others} in a host with {cpu}" if gpu is not None else cpu
    # A model of classical operators alone imports no opset of ONNX's own.
    opset = f" at opset {model.opset}" if model.opset else ""
    precision = in_precision(analysis).removesuffix(", ")
    text = ", ".join(filter(None, (f"{model.name}{opset}{batch}", precision)))
    return f"{text}, for {target}"


def render_text(subject: Analysis | Check, *, fail_on: str = "error") -> str:
    """Return the findings as a compiler writes them, the gravest first, and a last line that says it all."""
    check = check_of(subject, fail_on)
    parts = ["\n".join(map(printable, _lines(model))) for model in check.models]
    if check.several:
        parts.append(printable(f"{check.outcome}: {tally(check.findings)} ({check.subject})"))
    return "\n".join(f"{loggable(part)}\n" for part in parts)


def _lines(model: CheckedModel) -> Iterator[str]:
    for one in by_severity(model.findings):
        head, *more = one.lines
        yield from (head, *(f"    {line}" for line in more), "")
    for one in model.ignored:
        name = f" {one.operator.module or one.operator.name}" if one.operator is not None else ""
        reason = f": {one.finding.reason}" if one.finding.reason else ""
        yield from (f"ignored: {one.finding.code}{name}{reason}", "")
    tables = (*([model.devices] if model.devices else []), *([_changes((model,))] if model.changes else []))
    sections = tuple(Section(name="check", blocks=(table,)) for table in tables)
    if sections:
        yield from terminal.text(Document(title="", sections=sections)).splitlines()
    yield f"{model.outcome}: {tally(model.findings)} ({model.subject})"


def render_markdown(subject: Analysis | Check, *, fail_on: str = "error") -> str:
    """Return the findings as a table for a job summary or a pull request's comment.

    Of several it is a table of all models, what moved since their baselines, and under it what each of those
    says by which the check fails.
    """
    check = check_of(subject, fail_on)
    if not check.several:
        return _markdown(*_model_blocks(check.models[0]))
    models = Table(
        title="Models",
        head=("Model", "Check", "Findings"),
        rows=tuple((model.name, model.outcome, tally(model.findings)) for model in check.models),
    )
    name = f"Analyzer check of {plural(len(check.models), 'model')}"
    headline = Headline(name=name, subject=check.subject, sentence=check.outcome, level=1)
    moved = [_changes(check.models)] if any(model.changes is not None for model in check.models) else []
    failing = (_markdown(*_model_blocks(replace(one, changes=None))) for one in check.failing)
    return "\n".join((_markdown(headline, models, *moved), *failing))


def _changes(models: tuple[CheckedModel, ...]) -> Table | Text:
    """Return the figures of all models that moved since their baselines."""
    several = len(models) > 1
    rows = tuple((*([one.name] if several else []), *row) for one in models for row in one.changes or ())
    if not rows:
        return Text(text="No figure moved since the baseline.")
    head = ("Figure", "Before", "After", "Change")
    return Table(
        title="Since the baseline",
        head=("Model", *head) if several else head,
        rows=rows,
        figures=(2, 3, 4) if several else (1, 2, 3),
    )


def _markdown(*blocks: Block) -> str:
    return markdown(Document(title="", sections=(Section(name="check", blocks=blocks),)))


def _model_blocks(model: CheckedModel) -> Iterator[Block]:
    yield Headline(
        name=f"Analyzer check of {model.model}",
        subject=f"{tally(model.findings)} in {model.subject}",
        sentence=model.outcome,
    )
    if model.changes is not None:
        yield _changes((model,))
    if model.devices is not None:
        yield model.devices
    if model.findings:
        yield Table(
            title="Findings",
            head=("", "Rule", "Where", "What", "Cost per inference", "Fix"),
            rows=tuple(
                (
                    one.severity,
                    rule_label(one.finding.code),
                    one.place,
                    one.finding.message,
                    cost_of(one.finding),
                    one.finding.fix,
                )
                for one in by_severity(model.findings)
            ),
        )
    ignored = (one.finding for one in model.ignored)
    yield from items("Ignored", tuple((one.code, f"{one.message} {one.reason}".strip()) for one in ignored))
