"""Reporting: the document of one record: the answer first, then what it rests on, then all the rest."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checks.device_answers import operator_label, source_location
from analyzer.record.analysis import Analysis
from analyzer.report import (
    capacity_words,
    figure_text,
    generation_text,
    markdown,
    method,
    module_tree,
    plan_cards,
    summary,
    terminal,
    training_tables,
)
from analyzer.report import ranking_text as ranking_table
from analyzer.report import ranking_text as ranking_words
from analyzer.report.capacity_tables import instances
from analyzer.report.document import (
    ANSWER,
    SCREEN,
    WHOLE,
    Action,
    Block,
    Command,
    Document,
    Figures,
    Headline,
    Section,
    Table,
    Text,
    items,
    texts,
)
from analyzer.report.figure_text import joules, marked, per_second
from analyzer.report.findings_text import CHANGES_SHOWN, shown_findings
from analyzer.report.generation_text import tables as generation_tables
from analyzer.text import first_few, listed, plural
from analyzer.units import byte_count, dollars, factor, seconds, span

# Cells of a share's bar. Eight eighths each (U+2588 to U+258F) make 48 steps, so that 2 % is still a stroke.
_BAR = 6
_EIGHTHS = " ▏▎▍▌▋▊▉"


def document(analysis: Analysis) -> Document:
    """Return the document of a record."""
    analysis = ranking_words.as_answered(analysis)
    return Document.of(
        analysis.model.name,
        Section(name="capacity", blocks=tuple(_capacity(analysis))),
        Section(name="generation", blocks=tuple(_generation(analysis))),
        Section(name="answer", blocks=tuple(_run(analysis))),
        Section(name="ranking", blocks=tuple(_ranking(analysis))),
        Section(name="plans", blocks=tuple(_plans(analysis))),
        Section(name="training", title="The training step", blocks=tuple(training_tables.blocks(analysis))),
        Section(name="precisions", blocks=tuple(training_tables.tables(analysis))),
        Section(name="operators", blocks=tuple(_operators(analysis))),
        Section(name="facts", blocks=tuple(items("The model", summary.facts(analysis)))),
        Section(name="findings", blocks=tuple(_findings(analysis))),
        Section(name="rests", blocks=tuple(_rests(analysis))),
    )


def render_text(analysis: Analysis) -> str:
    """Return the report of a record as plain text of at most 100 columns."""
    return terminal.text(document(analysis))


def render_markdown(analysis: Analysis) -> str:
    """Return the report of a record as GitHub's Markdown."""
    return markdown.markdown(document(analysis))


def _capacity(analysis: Analysis) -> Iterator[Block]:
    capacity = analysis.capacity
    if capacity is None:
        return
    yield Headline(
        name=analysis.model.name,
        subject=capacity_words.subject(capacity),
        sentence=capacity_words.sentence(capacity),
        detail=ANSWER,
    )
    yield from texts(*capacity_words.details(capacity), detail=ANSWER)
    yield Figures(figures=tuple(capacity_words.figures(capacity)), detail=ANSWER)
    as_good = (one for one in analysis.ranking if one.why_not is not None and one.why_not.reason == "as_good")
    names = [f"{one.machine or one.device_name} ({dollars(one.usd_per_month)} a month)" for one in as_good]
    yield from items("As good within the error", (f"{first_few(names)}.",) if names else (), detail=ANSWER)
    yield from _next(analysis)
    if capacity.options:
        yield instances(analysis)
    yield from items("What these figures rest on", capacity_words.notes(capacity))


def _generation(analysis: Analysis) -> Iterator[Block]:
    generation = analysis.generation
    if generation is None:
        return
    first = analysis.capacity is None
    detail = ANSWER if first else WHOLE
    yield Headline(
        name=analysis.model.name if first else "One request",
        subject=generation_text.subject(generation),
        sentence=generation_text.sentence(analysis, generation, alone=not first),
        level=2 if first else 3,
        detail=detail,
    )
    if first:
        yield from texts(generation_text.details(analysis, generation), detail=detail)
    yield Figures(figures=tuple(generation_text.figures(generation)), detail=detail)
    if first:
        yield from _next(analysis)
    yield from generation_tables(analysis)


def run_name(analysis: Analysis) -> str:
    """Return the name of the run that plans and operators are of, where it is part of another answer."""
    if analysis.generation is not None:
        return generation_text.step(analysis.generation)
    return capacity_words.RUN if analysis.capacity is not None else ""


def _run(analysis: Analysis) -> Iterator[Block]:
    """Yield the answer: how sure, why, what would change it, the command that acts on it."""
    part_of = run_name(analysis)
    first = WHOLE if part_of else ANSWER
    yield Headline(
        name=part_of or analysis.model.name,
        subject=summary.subject(analysis),
        sentence=_of_a_part(analysis) if part_of else ranking_words.sentence(analysis),
        level=3 if part_of else 2,
        detail=SCREEN if part_of else ANSWER,
    )
    yield from texts(summary.errors(analysis), style="error", detail=ANSWER)
    result = (summary.confidence(analysis), summary.crossover(analysis))
    sure, elsewhere = " ".join(filter(None, result)), not part_of and ranking_words.is_elsewhere(analysis)
    of_answer = ("" if elsewhere else sure, "" if part_of else ranking_words.price(analysis))
    yield from texts(" ".join(filter(None, of_answer)), *summary.guesses(analysis), detail=first)
    if not part_of:
        yield from items("Other choices", tuple(ranking_words.alternatives(analysis)), detail=first)
        yield from texts(ranking_words.details(analysis), sure if elsewhere else "", detail=first)
    about = ranking_words.about_first(analysis)
    yield from items(f"Why{about}", summary.reasons(analysis), detail=first)
    yield from items("What would change it", analysis.verdict.would_change, detail=first)
    if not part_of:
        yield from _next(analysis)
    if line := method.apply_command(analysis):
        yield Command(label=method.apply_words(analysis), line=line, detail=first)


def _of_a_part(analysis: Analysis) -> str:
    """Return the times of the run that a service's answer rests on, which recommends nothing of its own."""
    cards = [card for card in ranking_words.cards(analysis) if card.plan.name != "hybrid"]
    # The verdict says what runs, fits or fails.
    if (
        analysis.capacity is None
        or analysis.verdict.speedup is None
        or not all(card.plan.fits for card in cards)
    ):
        return analysis.verdict.sentence
    times = [
        f"{seconds(plan.latency_s)} ({plan.origin}, {plan.latency.between(seconds)}) on the {card.device}"
        for card in cards
        for plan in (card.plan,)
    ]
    return f"One run takes {listed(times)}."


def _next(analysis: Analysis) -> Iterator[Block]:
    """Yield the changes with the largest gains: by how much, where, and the command."""
    yield from items("Do this next", tuple(_actions(analysis)), detail=ANSWER)


def _actions(analysis: Analysis) -> Iterator[Action | str]:
    tokens = " tokens" if analysis.generation is not None else ""
    number = (analysis.answer and analysis.answer.batch) or 1
    name = "example" if analysis.model.training else "sequence" if tokens else "inference"
    as_many = plural(number, name) if number > 1 else name
    for one in analysis.opportunities[:CHANGES_SHOWN]:
        gains = []
        if one.gain_s is not None:
            ends = span(seconds(one.gain_low_s), seconds(one.gain_high_s))
            # A larger batch takes longer: what it saves is of as many as now.
            each = f" for every {as_many}" if one.code == "batch" else ""
            gains.append(f"{seconds(one.gain_s)}{each} ({ends})")
        if one.gain_usd_per_million is not None:
            ends = span(dollars(one.gain_usd_low_per_million), dollars(one.gain_usd_high_per_million))
            interval = f" ({ends})" if one.gain_usd_low_per_million is not None else ""
            gains.append(f"{dollars(one.gain_usd_per_million)} per million{tokens}{interval}")
        yield Action(
            title=one.title,
            gain=f"saves {' and '.join(gains)}",
            operator=operator_label(analysis.operators[one.operators[0]]) if one.operators else "",
            index=one.operators[0] if one.operators else None,
            others=f" and {more:,} more" if (more := len(one.operators) - 1) > 0 else "",
            place=f"{one.source.file}:{one.source.line}" if one.source else "",
            command=one.command,
        )
    if more := len(analysis.opportunities[CHANGES_SHOWN:]):
        yield f"The record has {more} more."


def _ranking(analysis: Analysis) -> Iterator[Block]:
    if sheet := ranking_table.sheet(analysis):
        yield sheet
    # Of a request or a service, the tables of devices and instances say which.
    if analysis.alternatives and not run_name(analysis):
        yield Table(
            title="Each further GPU against the CPU alone",
            head=("GPU", "Verdict", "Speed-up over the CPU", "90 % interval", "Crossover batch"),
            rows=tuple(
                (
                    one.device.name,
                    figure_text.VERDICT_WORDS[one.verdict.device]
                    + ("" if one.device.runs_release_wheel else " (no machine code)"),
                    factor(one.verdict.speedup),
                    f"{factor(one.verdict.low)} to {factor(one.verdict.high)}",
                    summary.crossover_batch(one.verdict),
                )
                for one in analysis.alternatives
            ),
            figures=(2, 3, 4),
            most=0,
        )


def _plans(analysis: Analysis) -> Iterator[Block]:
    cards = ranking_words.table_cards(analysis)
    if not cards:
        return
    detail = SCREEN if run_name(analysis) else ANSWER
    # Two marks would be two answers: where the ranking is the answer, the mark is in it.
    chosen = next((at for at, card in enumerate(cards) if card.chosen), None)
    yield Table(
        name="plans",
        title="Plans",
        head=("Plan", "Latency", "90 % interval", "Per second", "Memory", "$ per million", "Energy"),
        rows=tuple(
            (
                card.title,
                marked(seconds(plan.latency_s), plan.origin),
                plan.latency.between(seconds),
                per_second(plan.throughput_per_s),
                byte_count(plan.memory_bytes) + ("" if plan.fits else " (does not fit)"),
                marked(dollars(plan.usd_per_million), card.dollars_origin),
                marked(joules(plan.energy_j), card.energy_origin),
            )
            for card in cards
            for plan in (card.plan,)
        ),
        figures=(1, 2, 3, 4, 5, 6),
        drop=(0, 0, 1, 3, 2, 0, 4),
        chosen=None if ranking_words.leads(analysis) else chosen,
        detail=detail,
    )
    yield from texts(plan_cards.priced_on(analysis), style="small", detail=detail)
    yield from texts(plan_cards.energy_of(analysis), style="small")


def _operators(analysis: Analysis) -> Iterator[Block]:
    operators = module_tree.top_operators(analysis)
    if not operators:
        return
    verdicts = [one.verdict for one in operators]
    yield Table(
        name="top-operators",
        title=module_tree.top_title(operators, analysis),
        head=("Operator", "Module", "Source", "", "Share", "CPU", "GPU", "CPU/GPU", "Verdict"),
        rows=tuple(
            (
                f"{one.op_type} #{one.index}" if one.alone else one.op_type,
                one.place if one.place != source_location(one.alone) else "",
                source_location(one.alone),
                bar(one.share),
                one.share_text,
                marked(*one.cpu),
                marked(*one.gpu),
                one.speedup,
                f"{word} ({aside})" if aside else word,
            )
            for one, (_, word, aside) in zip(operators, verdicts, strict=True)
        ),
        figures=(4, 5, 6, 7),
        drop=(0, 1, 4, 3, 0, 0, 0, 2, 0),
        paths=(1,),
        tones=tuple(device for device, _, _ in verdicts),
        most=0,
        detail=WHOLE if analysis.capacity or analysis.generation else SCREEN,
    )


def bar(part: float | None, width: int = _BAR) -> str:
    """Return a horizontal bar of ``width`` cells for a share between 0 and 1."""
    if part is None:
        return " " * width
    full, rest = divmod(round(min(max(part, 0.0), 1.0) * width * 8), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _findings(analysis: Analysis) -> Iterator[Block]:
    result = (
        (f"{one.severity} {one.code}", f"{one.message}. Fix: {one.fix}") for one in shown_findings(analysis)
    )
    yield from items("Findings", tuple(result))


def _rests(analysis: Analysis) -> Iterator[Block]:
    """Yield what an answer rests on that was not given, and what the record does not hold, as sentences."""
    points = (
        *(summary.guesses(analysis) if run_name(analysis) else ()),
        *summary.statements(analysis),
        figure_text.statement(analysis),
        *summary.missing(analysis),
        # Messages of a measurement are clauses, as a log has them.
        *(f"{text[:1].upper()}{text[1:].removesuffix('.')}." for text in analysis.environment.messages),
        *(analysis.generation.notes if analysis.generation is not None else ()),
    )
    yield from items("What it rests on", tuple(dict.fromkeys(filter(None, points))), detail=ANSWER)
    legend = ", ".join(f"{mark.sign} {mark.name}" for mark in figure_text.MARKS.values())
    made = f"{legend}. {analysis.tool.name} {analysis.tool.version}"
    yield Text(text=made, style="small", detail=ANSWER)
