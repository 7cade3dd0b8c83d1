"""A comparison as a document and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from analyzer.report import figure_text, markdown, terminal
from analyzer.report.charts import batches, caption, roofline, time_share
from analyzer.report.charts.chart import Chart, vega_config
from analyzer.report.compare import joined_tree
from analyzer.report.compare.comparison import (
    ComparedFact,
    ComparedFigure,
    Comparison,
    Difference,
    OperatorChange,
)
from analyzer.report.compare.figures import worth_a_row
from analyzer.report.compare.sentences import headline, statements
from analyzer.report.document import ANSWER, Block, Document, Headline, Section, Table, Text, items, texts
from analyzer.report.figure_text import VERDICT_WORDS, marked
from analyzer.report.html import environment
from analyzer.text import plural
from analyzer.units import factor, seconds, share, span

# Rows of each list: those shown at once, and all; the JSON holds the rest.
SHOWN, MOST = 10, 100
_GROUPS = {
    "capacity": "Capacity",
    "generation": "Generation",
    "plans.hybrid": "Best plan",
    "plans.gpu": "GPU",
    "plans.cpu": "CPU",
    "verdict": "Verdict",
}
_WORK = "Work and findings"
_PLANS = ("plans.hybrid.", "plans.gpu.", "plans.cpu.")


def render_text(comparison: Comparison) -> str:
    """Return a comparison as plain text of at most 100 columns."""
    return terminal.text(document(comparison))


def render_markdown(comparison: Comparison) -> str:
    """Return a comparison as GitHub's Markdown."""
    return markdown.markdown(document(comparison))


def document(comparison: Comparison) -> Document:
    """Return the document of a comparison; ``difference-N`` is the section of the base and the N-th other."""
    return Document.of(
        title(comparison.labels),
        Section(name="answer", blocks=tuple(_answer(comparison))),
        Section(name="facts", blocks=tuple(_facts(comparison.facts, comparison.labels, "the question"))),
        Section(name="figures", title="Side by side", blocks=tuple(_figures(comparison))),
        *(
            Section(
                name=f"difference-{at}",
                title=f"{comparison.labels[0]} → {difference.label}",
                blocks=tuple(_difference(comparison.labels[0], difference)),
            )
            for at, difference in enumerate(comparison.differences, 1)
        ),
        Section(
            name="environment",
            blocks=tuple(_facts(comparison.environment, comparison.labels, "the environment")),
        ),
    )


def title(labels: Sequence[str]) -> str:
    """Return ``NEW against BASE``, or how many records are compared."""
    if len(labels) == 2:
        return f"{labels[1]} against {labels[0]}"
    return f"{len(labels)} records: {', '.join(labels)}"


def _answer(comparison: Comparison) -> Iterator[Block]:
    sentence, sure = headline(comparison)
    subject = f"compared with the base, {comparison.labels[0]}"
    yield Headline(name=title(comparison.labels), subject=subject, sentence=sentence, detail=ANSWER)
    yield from texts(sure, *statements(comparison), detail=ANSWER)
    notes = tuple(f"{note[0].upper()}{note[1:]}." for note in comparison.notes)
    yield from items("To be read with it", notes, detail=ANSWER)


def _facts(facts: Sequence[ComparedFact], labels: Sequence[str], place: str) -> Iterator[Block]:
    differ = [fact for fact in facts if fact.differs]
    if differ:
        yield Table(
            title=f"What differs in {place}",
            head=("", *labels),
            rows=tuple((fact.label, *_shown_values(fact)) for fact in differ),
            head_marks=_records(labels),
        )
    same = [f"{fact.label} {_shown_values(fact)[0]}" for fact in facts if not fact.differs]
    yield from texts(f"The same in all: {', '.join(same)}." if same else "")


def _records(labels: Sequence[str]) -> tuple[str, ...]:
    # Eight colours of report.css, which repeat beyond.
    return ("", *(f"record record-{at % 8 + 1}" for at in range(len(labels))))


def _shown_values(fact: ComparedFact) -> tuple[str, ...]:
    if fact.key != "verdict.device":
        return fact.values
    return tuple(VERDICT_WORDS.get(value, VERDICT_WORDS[None]) for value in fact.values)


def _figures(comparison: Comparison) -> Iterator[Block]:
    yield Text(
        text="★ marks the best of each row; ☆ says that the order is within the error. Predictions for the "
        "same devices share errors, which cancel. A figure's change is from the base; small figures are 90 % "
        "intervals."
    )
    groups: dict[str, list[ComparedFigure]] = {name: [] for name in (*_GROUPS.values(), _WORK)}
    for figure in filter(worth_a_row, comparison.figures):
        known = (name for key, name in _GROUPS.items() if figure.key.startswith(f"{key}."))
        groups[next(known, _WORK)].append(figure)
    # A best plan that is a single device's in every record would be the same rows twice.
    best = [figure.values for figure in groups["Best plan"]]
    twins = [side for side in ("GPU", "CPU") if best and best == [one.values for one in groups[side]]]
    for name, figures in groups.items():
        if figures and not (name == "Best plan" and twins):
            is_best = ", which is the best plan" if name in twins else ""
            yield _figure_table(comparison.labels, f"{name}{is_best}", figures)


def _figure_table(labels: Sequence[str], name: str, figures: Sequence[ComparedFigure]) -> Table:
    cells = [[_cell(figure, at) for at in range(len(labels))] for figure in figures]
    return Table(
        title=name,
        head=("", *labels),
        rows=tuple(
            (_short(figure), *(cell for cell, _, _ in row)) for figure, row in zip(figures, cells, strict=True)
        ),
        figures=tuple(range(1, len(labels) + 1)),
        beside=tuple(("", *(extra for _, extra, _ in row)) for row in cells),
        head_marks=_records(labels),
        cell_marks=tuple(("", *(mark for _, _, mark in row)) for row in cells),
    )


def _short(figure: ComparedFigure) -> str:
    """Return the label without the plan, which the table's title has."""
    if not figure.key.startswith(_PLANS):
        return figure.label
    return (
        figure.label.removesuffix(" on the CPU").removesuffix(" on the GPU").removesuffix(" of the best plan")
    )


def _cell(figure: ComparedFigure, at: int) -> tuple[str, str, str]:
    """Return figure of a record with its mark; its interval and its change; whether it is better or worse."""
    base, value = figure.values[0], figure.values[at]
    star = "" if figure.best != at else " ☆" if figure.certain is False else " ★"
    text = marked(figure.text(value), figure.origin(at)) + star
    extra = []
    if figure.low and figure.low[at] is not None and figure.high[at] is not None:
        extra.append(span(figure.text(figure.low[at]), figure.text(figure.high[at])))
    if at == 0 or base is None or value is None or value == base:
        return text, ", ".join(extra), ""
    apart = figure.apart(0, at)
    # A change within the intervals is neither better nor worse: it may be none.
    tone = ""
    if figure.better and apart is not False:
        tone = "better" if (value < base) == (figure.better == "less") else "worse"
    extra += [tone, {None: "", True: "beyond the intervals", False: "within the intervals"}[apart]]
    return f"{text}, {change(base, value)}", ", ".join(filter(None, extra)), tone


def change(base: float, value: float) -> str:
    """Return how a figure compares with the base's: ``the same``, ``12 % less``, ``3.4x``."""
    if value == base:
        return "the same"
    if not base:
        return "was 0"
    # A fall stays a share, as a factor below 1 reads like a gain; a rise beyond a doubling is a factor.
    ratio = value / base
    if ratio >= 2:
        return factor(ratio)
    return f"{share(abs(ratio - 1))} {'more' if ratio > 1 else 'less'}"


def _difference(base: str, difference: Difference) -> Iterator[Block]:
    yield from texts(_lead(base, difference), *joined_tree.notes(difference.tree))
    heads = (base, difference.label)
    rows = [
        (
            joined_tree.module_title(one),
            plural(one.operators, "operator"),
            seconds(one.base_s),
            seconds(one.new_s),
            _signed(one.rise_s),
        )
        for one in difference.tree.changes
    ]
    marks = ["worse" if one.rise_s > 0 else "better" for one in difference.tree.changes]
    yield from _listed("Changed most, by module", ("Module", "Operators", *heads, "Change"), rows, marks)
    head = ("Operator", "Source", *heads, "Change")
    for name, changes in (("Slower", difference.of_kind("slower")), ("Faster", difference.of_kind("faster"))):
        marks = [("worse" if one.rise_s > 0 else "better") if one.certain else "" for one in changes]
        yield from _listed(name, head, [_timed(one) for one in changes], marks)
    ways = ("Operator", "Source", *heads, "In", "Time")
    yield from _listed("On another device", ways, [_flipped(one) for one in difference.flipped])
    for name, alone in (
        ("New operators", difference.of_kind("new")),
        ("Operators gone", difference.of_kind("gone")),
    ):
        entries = [
            (f"{one.name} #{one.index}", one.where, seconds(one.base_s if one.new is None else one.new_s))
            for one in alone
        ]
        yield from _listed(name, ("Operator", "Source", "Time"), entries)
    for name, findings in (
        ("Findings that appeared", difference.findings_new),
        ("Findings that disappeared", difference.findings_gone),
    ):
        result = tuple((f"{one.severity} {one.code}", one.message) for one in findings)
        yield from items(name, result)


def _lead(base: str, difference: Difference) -> str:
    """Return how many operators are in both, and how many of them changed."""
    each = " Times are those of one inference, as the batches differ." if difference.per_inference else ""
    matched = len(difference.both)
    parts = [f"{plural(matched, 'operator')} {'is' if matched == 1 else 'are'} in both"]
    if not matched:
        parts = ["no operator of one is in the other"]
    counts = (
        ("slower", difference.of_kind("slower")),
        ("faster", difference.of_kind("faster")),
        ("on another device", difference.flipped),
    )
    changed = [f"{len(changes)} {word}" for word, changes in counts if changes]
    if matched:
        parts.append(f"of these {', '.join(changed)}" if changed else "none of them changed")
    alone = (
        (f"only in {difference.label}", difference.of_kind("new")),
        (f"only in {base}", difference.of_kind("gone")),
    )
    parts += [f"{len(entries)} {word}" for word, entries in alone if entries]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}.{each}"


def _listed(
    name: str, head: Sequence[str], rows: Sequence[tuple[str, ...]], marks: Sequence[str] = ()
) -> Iterator[Table]:
    """Yield a table of what changed, folded up where it is long."""
    if rows:
        last = len(head) - 1
        yield Table(
            title=name,
            head=tuple(head),
            rows=tuple(rows[:MOST]),
            figures=tuple(range(2, len(head))),
            drop=(0, 1, *(0 for _ in head[2:])),
            paths=(1,),
            cell_marks=tuple((*[""] * last, mark) for mark in marks[:MOST]),
            shown=tuple(range(min(len(rows), SHOWN))),
            most=SHOWN,
        )


def _timed(one: OperatorChange) -> tuple[str, ...]:
    note = ""
    if one.base_s is not None and one.new_s is not None:
        note = f"{change(one.base_s, one.new_s)} ({_signed(one.rise_s)})"
    unsure = "" if one.certain else ", within the intervals"
    return one.name, one.where, seconds(one.base_s), seconds(one.new_s), f"{note}{unsure}"


def _signed(rise_s: float) -> str:
    # U+2212, as wide as the plus: in a column of figures a hyphen is lost.
    return f"{'+' if rise_s > 0 else '−'}{seconds(abs(rise_s))}"


def _flipped(one: OperatorChange) -> tuple[str, ...]:
    before, after = one.device or one.placed_on or ("", "")
    session = "best plan" if one.device else "CUDA session"
    times = f"{seconds(one.base_s)} → {seconds(one.new_s)}"
    return one.name, one.where, before.upper(), after.upper(), session, times


def render(comparison: Comparison) -> str:
    """Return the comparison as one page; the same comparison gives the same bytes."""
    return environment().get_template("compare.html.j2").render(build(comparison))


def build(comparison: Comparison) -> dict[str, Any]:
    """Return everything that the template shows."""
    charts = charts_of(comparison)
    shown = document(comparison)
    joined = [joined_tree.payload(comparison, at) for at in range(1, len(comparison.labels))]
    return {
        "title": shown.title,
        "labels": comparison.labels,
        "sections": {section.name: section for section in shown.sections},
        "trees": tuple(
            # Why there is no tree, in a sentence; empty where there is one.
            (joined_tree.missing(comparison, at), joined_tree.lead(comparison, at))
            for at in range(1, len(comparison.labels))
        ),
        "marks": figure_text.origin_note("under Environment"),
        "charts": {chart.name: chart for chart in charts},
        "data": {
            "name": "comparison",
            "charts": {chart.name: chart.payload() for chart in charts},
            "style": vega_config(),
            "captions": {
                chart.name: {
                    "subject": shown.title,
                    "footer": caption.origin_sentences(chart),
                }
                for chart in charts
            },
            # The scripts are the report's own and look for these; no chart here refers to them.
            "operators": {},
            "modules": {},
            "groups": [],
            "joined": joined,
            "marks": {mark.name: mark.sign for mark in figure_text.MARKS.values()},
        },
        "joined": any(joined),
        "kinds": joined_tree.KINDS,
    }


def charts_of(comparison: Comparison) -> tuple[Chart, ...]:
    """Return the page's charts, in their order."""
    records, labels = comparison.analyses, comparison.labels
    charts = (
        batches.plans(*records, labels=labels),
        *batches.charts(*records, labels=labels),
        time_share.by_type(*records, labels=labels),
        roofline.chart(*records, labels=labels),
    )
    return tuple(chart for chart in charts if chart is not None)
