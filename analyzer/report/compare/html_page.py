"""Reporting: a comparison of two or more analyses as one HTML page, differences first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyzer.report.charts import batches, caption, roofline, time_share
from analyzer.report.charts.chart import Chart, vega_config
from analyzer.report.compare import capacity, generation, sentences, tree_page
from analyzer.report.compare.comparison import (
    ComparedFact,
    ComparedFigure,
    Comparison,
    Difference,
    ModuleChange,
    OperatorChange,
    OperatorEntry,
)
from analyzer.report.compare.figures import PLANS, worth_a_row
from analyzer.report.compare.plain_text import figure_text
from analyzer.report.html import environment
from analyzer.report.summary import figure_words
from analyzer.text import plural
from analyzer.units import UNKNOWN, factor, seconds, share, span

# Rows of each list of operators; the JSON holds all.
MOST = 100
# Of them what is shown at once, slower and faster together.
LARGEST = 12
_GROUPS = {
    "capacity": capacity.GROUP,
    "generation": generation.GROUP,
    "plans.hybrid": "Best plan",
    "plans.gpu": "GPU",
    "plans.cpu": "CPU",
    "verdict": "Verdict",
}
_WORK = "Work and findings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A figure of one record, and how it compares with the base's.

    Attributes:
        text: The figure with its unit.
        change: ``12 % more``, ``3.1x``, ``the same``; empty for the base.
        way: ``up``, ``down`` or empty: where it went from the base.
        tone: ``better``, ``worse`` or empty; empty too where the intervals overlap.
        origin: ``measured``, ``predicted``, ``mixed`` or empty.
        unsure: Whether its interval overlaps the base's; None where one of them is not known.
        interval: ``10 to 12 ms``, empty where not known.
        best: Whether no record has a better one.
    """

    text: str
    change: str = ""
    way: str = ""
    tone: str = ""
    origin: str = ""
    unsure: bool | None = None
    interval: str = ""
    best: bool = False

    @property
    def aside(self) -> str:
        """What is said beside a change: whether it is good, and whether it is sure."""
        sure = {None: "", True: "within the intervals", False: "beyond the intervals"}[self.unsure]
        return ", ".join(filter(None, (self.tone, sure)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One row of a table side by side; ``certain`` says whether the best is beyond the others' intervals."""

    label: str
    cells: tuple[Cell, ...]
    key: str = ""
    certain: bool | None = None

    @property
    def short(self) -> str:
        """The label without what the heading of its group says already."""
        _, _, plan = self.key.partition("plans.")
        return self.label.removesuffix(f" {PLANS.get(plan.partition('.')[0], '')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLine:
    """An operator that changed, came or went."""

    name: str
    where: str
    before: str
    after: str
    note: str
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A list of operators or findings under a heading; ``hidden`` counts those not listed."""

    title: str
    lines: tuple[OperatorLine, ...]
    hidden: int = 0
    open: bool = False


def render(comparison: Comparison) -> str:
    """The comparison as one page; the same comparison gives the same bytes."""
    return environment().get_template("compare.html.j2").render(build(comparison))


def build(comparison: Comparison) -> dict[str, Any]:
    """What the template is given."""
    charts = charts_of(comparison)
    headline, sure = sentences.headline(comparison)
    lines = tuple(_line(figure) for figure in comparison.figures if worth_a_row(figure))
    joined = [tree_page.payload(comparison, at) for at in range(1, len(comparison.labels))]
    return {
        "title": title_of(comparison.labels),
        "labels": comparison.labels,
        "headline": headline,
        "sure": sure,
        "statements": sentences.statements(comparison),
        "facts": tuple(_fact_line(fact) for fact in comparison.facts if fact.differs),
        "shared": tuple((fact.label, _shown_values(fact)[0]) for fact in comparison.facts if not fact.differs),
        "lines": lines,
        "groups": _grouped(lines),
        "differences": tuple(
            {
                "label": difference.label,
                "lead": _lead(comparison.labels[0], difference),
                "sections": _sections(difference),
                # Why there is no tree, in a sentence; empty where there is one.
                "missing": tree_page.missing(comparison, at),
                "tree_lead": tree_page.lead(comparison, at),
                "notes": tree_page.notes(comparison.trees[at - 1]),
            }
            for at, difference in enumerate(comparison.differences, 1)
        ),
        "environment": tuple(_fact_line(fact) for fact in comparison.environment if fact.differs),
        "environment_shared": tuple(
            (fact.label, fact.values[0]) for fact in comparison.environment if not fact.differs
        ),
        "notes": tuple(f"{note[0].upper()}{note[1:]}." for note in comparison.notes),
        "marks": _marks(),
        "charts": {chart.name: chart for chart in charts},
        "data": {
            "name": "comparison",
            "charts": {chart.name: chart.payload() for chart in charts},
            "style": vega_config(),
            "captions": {
                chart.name: {
                    "subject": title_of(comparison.labels),
                    "footer": caption.origin_sentences(chart),
                }
                for chart in charts
            },
            # The scripts are the report's own and look for these; no chart here refers to them.
            "operators": {},
            "modules": {},
            "groups": [],
            "joined": joined,
            "marks": {mark.name: mark.sign for mark in figure_words.MARKS.values()},
        },
        "joined": any(joined),
        "kinds": tree_page.KINDS,
    }


def _marks() -> tuple[figure_words.Mark, ...]:
    """The origins that a comparison shows; what a report has under Method stands under Environment here."""
    return tuple(
        replace(mark, meaning=mark.meaning.replace("under Method", "under Environment"))
        for mark in figure_words.MARKS.values()
        if mark.name != "modelled"
    )


def title_of(labels: Sequence[str]) -> str:
    """What is compared with what."""
    if len(labels) == 2:
        return f"{labels[1]} against {labels[0]}"
    return f"{len(labels)} records: {', '.join(labels)}"


def charts_of(comparison: Comparison) -> tuple[Chart, ...]:
    """The page's charts, in their order."""
    records, labels = comparison.analyses, comparison.labels
    charts = (
        batches.plans(*records, labels=labels),
        *batches.charts(*records, labels=labels),
        time_share.by_type(*records, labels=labels),
        roofline.chart(*records, labels=labels),
    )
    return tuple(chart for chart in charts if chart is not None)


def _grouped(lines: Sequence[ComparisonRow]) -> tuple[tuple[str, tuple[ComparisonRow, ...]], ...]:
    def group_of(line: ComparisonRow) -> str:
        return next((title for key, title in _GROUPS.items() if line.key.startswith(f"{key}.")), _WORK)

    grouped = {
        title: tuple(line for line in lines if group_of(line) == title) for title in (*_GROUPS.values(), _WORK)
    }
    # A best plan that is a single device's in every record would be the same rows twice.
    best = [line.cells for line in grouped["Best plan"]]
    twins = [side for side in ("GPU", "CPU") if best and best == [line.cells for line in grouped[side]]]
    titles = {side: f"{side}, which is the best plan" for side in twins}
    hidden = {"Best plan"} if twins else set()
    return tuple(
        (titles.get(title, title), rows) for title, rows in grouped.items() if rows and title not in hidden
    )


def _fact_line(fact: ComparedFact) -> ComparisonRow:
    return ComparisonRow(
        label=fact.label, cells=tuple(Cell(text=text) for text in _shown_values(fact)), key=fact.key
    )


def _shown_values(fact: ComparedFact) -> tuple[str, ...]:
    if fact.key != "verdict.device":
        return fact.values
    return tuple(
        figure_words.VERDICT_WORDS.get(value, figure_words.VERDICT_WORDS[None]) for value in fact.values
    )


def _line(figure: ComparedFigure) -> ComparisonRow:
    cells = tuple(_cell(figure, at, value) for at, value in enumerate(figure.values))
    return ComparisonRow(label=figure.label, cells=cells, key=figure.key, certain=figure.certain)


def _cell(figure: ComparedFigure, at: int, value: float | None) -> Cell:
    base = figure.values[0]
    cell = Cell(
        text=figure_text(value, figure.unit),
        origin=_at(figure.origins, at),
        interval=_interval(figure, at),
        best=figure.best == at,
    )
    if at == 0 or base is None or value is None:
        return cell
    apart = figure.apart(0, at) if value != base else None
    # A change within the intervals gets no colour: it may be none.
    better = (value < base) == (figure.better == "less")
    tone = "" if value == base or not figure.better or apart is False else "better" if better else "worse"
    way = "" if value == base else "up" if value > base else "down"
    unsure = None if apart is None else not apart
    return replace(cell, change=change(base, value), way=way, tone=tone, unsure=unsure)


def _interval(figure: ComparedFigure, at: int) -> str:
    if not figure.low or figure.low[at] is None or figure.high[at] is None:
        return ""
    return span(figure_text(figure.low[at], figure.unit), figure_text(figure.high[at], figure.unit))


def _at(values: Sequence[str], place: int) -> str:
    return values[place] if values else ""


def change(base: float, value: float) -> str:
    """How a figure compares with the base's, in words: ``the same``, ``12 % less``, ``3.4x``."""
    if value == base:
        return "the same"
    if not base:
        return "was 0"
    # A fall stays a share, as a factor below 1 reads like a gain; a rise beyond a doubling is a factor.
    ratio = value / base
    if ratio >= 2:
        return factor(ratio)
    return f"{share(abs(ratio - 1))} {'more' if ratio > 1 else 'less'}"


def _lead(base: str, difference: Difference) -> str:
    """What was matched, and how many of it changed."""
    each = " Times are those of one inference, as the batches differ." if difference.per_inference else ""
    parts = [f"{plural(difference.matched, 'operator')} {'is' if difference.matched == 1 else 'are'} in both"]
    if not difference.matched:
        parts = ["no operator of one is found in the other"]
    counts = (
        ("slower", difference.slower),
        ("faster", difference.faster),
        ("on another device", difference.flipped),
    )
    changed = [f"{len(changes)} {word}" for word, changes in counts if changes]
    if difference.matched:
        parts.append(f"of these {', '.join(changed)}" if changed else "none of them changed")
    alone = ((f"only in {difference.label}", difference.new), (f"only in {base}", difference.gone))
    parts += [f"{len(entries)} {word}" for word, entries in alone if entries]
    changed_findings = (
        f"{len(difference.findings_new)} appeared and {len(difference.findings_gone)} disappeared"
    )
    findings = changed_findings if difference.findings_new or difference.findings_gone else "the same in both"
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}. Findings: {findings}.{each}"


def _sections(difference: Difference) -> tuple[Section, ...]:
    most = difference.changed[:LARGEST]
    # What a short list holds already is not listed again by direction.
    has_more = len(difference.changed) > LARGEST
    slower, faster = (difference.slower, difference.faster) if has_more else ((), ())
    new, gone = (
        [_finding(entry.severity, entry.code, entry.message) for entry in findings]
        for findings in (difference.findings_new, difference.findings_gone)
    )
    lists = (
        ("Changed most", [_timed(operator) for operator in most], True),
        ("Changed most, by module", [_module(change) for change in difference.modules], True),
        ("Findings that appeared", new, True),
        ("Findings that disappeared", gone, True),
        ("On another device", [_flip(operator) for operator in difference.flipped], True),
        ("New operators", [_entry(entry, "", seconds(entry.time_s)) for entry in difference.new], False),
        ("Operators gone", [_entry(entry, seconds(entry.time_s), "") for entry in difference.gone], False),
        ("All that are slower", [_timed(operator) for operator in slower], False),
        ("All that are faster", [_timed(operator) for operator in faster], False),
    )
    return tuple(
        Section(
            title=f"{title} ({len(lines)})",
            lines=tuple(lines[:MOST]),
            hidden=max(len(lines) - MOST, 0),
            open=is_open,
        )
        for title, lines, is_open in lists
        if lines
    )


def _flip(change: OperatorChange) -> OperatorLine:
    before, after = change.device or change.placed_on or ("", "")
    what = "in the best plan" if change.device else "in the CUDA session"
    note = f"{what}; {seconds(change.base_s)} before, {seconds(change.new_s)} now"
    return OperatorLine(
        name=change.name, where=change.where, before=before.upper(), after=after.upper(), note=note
    )


def _signed(rise_s: float) -> str:
    # U+2212, as wide as the plus: in a column of figures a hyphen is lost.
    return f"{'+' if rise_s > 0 else '−'}{seconds(abs(rise_s))}"


def _module(item: ModuleChange) -> OperatorLine:
    return OperatorLine(
        name=tree_page.module_title(item),
        where=plural(item.operators, "operator"),
        before=seconds(item.base_s),
        after=seconds(item.new_s),
        note=_signed(item.rise_s),
        tone="worse" if item.rise_s > 0 else "better",
    )


def _timed(item: OperatorChange) -> OperatorLine:
    note = ""
    if item.base_s is not None and item.new_s is not None:
        note = f"{change(item.base_s, item.new_s)} ({_signed(item.rise_s)})"
    if not item.certain:
        note = f"{note}, within the intervals"
    return OperatorLine(
        name=item.name,
        where=item.where,
        before=seconds(item.base_s),
        after=seconds(item.new_s),
        note=note,
        tone=("worse" if item.rise_s > 0 else "better") if item.certain else "",
    )


def _entry(entry: OperatorEntry, before: str, after: str) -> OperatorLine:
    return OperatorLine(
        name=entry.name,
        where=entry.where,
        before=before or UNKNOWN,
        after=after or UNKNOWN,
        note=f"#{entry.index}",
    )


def _finding(severity: str, code: str, message: str) -> OperatorLine:
    return OperatorLine(name=f"{severity} {code}", where="", before="", after="", note=message)
