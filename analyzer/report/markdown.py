"""Reporting: Markdown for a pull request: verdict, plans, the operators that matter, findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from analyzer.record.analysis import Analysis
from analyzer.report import (
    capacity_tables,
    capacity_words,
    device_rows,
    generation_tables,
    generation_words,
    method,
    precision_rows,
    price_words,
    training_tables,
)
from analyzer.report.answer import AnswerFigure, TextTable
from analyzer.report.escaping import escape, printable
from analyzer.report.ranking import table as ranking_table
from analyzer.report.ranking import words as ranking_words
from analyzer.report.summary import figure_words, leading_operators, model_facts, plan_cards, verdict_words
from analyzer.report.summary.figure_words import MARKS, sign, signed
from analyzer.text import loggable, plural
from analyzer.units import byte_count, count, flop_count

# More are folded up.
_MOST_DEVICES = 12


def render(analysis: Analysis) -> str:
    """GitHub's Markdown; every name of the model is escaped, so that it neither formats nor mentions."""
    blocks = (
        _capacity(analysis),
        _generation(analysis),
        _heading(analysis),
        _ranking(analysis),
        _plans(analysis),
        _devices(analysis),
        _reasons(analysis),
        _training(analysis),
        _precisions(analysis),
        _operators(analysis),
        _findings(analysis),
        _footer(analysis),
    )
    return loggable("\n\n".join(block for block in blocks if block)) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A table whose cells are Markdown already."""
    flush = set(right)
    rule = ["---:" if at in flush else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def _heading(analysis: Analysis) -> str:
    # What was asked beyond it stands above; this is one step or run of it.
    answer = analysis.verdict.sentence
    if analysis.generation is not None:
        first = f"### {generation_words.step(analysis.generation)}"
    elif analysis.capacity is not None:
        first = f"### {capacity_words.RUN}"
    else:
        first, answer = f"## {escape(analysis.model.name)}", ranking_words.sentence(analysis)
    lines = [f"{first}: {escape(answer)}", ""]
    if verdict_words.errors(analysis):
        lines += [f"**{escape(verdict_words.errors(analysis))}**", ""]
    lines.append(escape(verdict_words.subject(analysis)) + ".")
    said = (
        *ranking_words.beside(analysis),
        verdict_words.confidence(analysis),
        verdict_words.crossover(analysis),
        *model_facts.statements(analysis),
        price_words.statement(analysis) if analysis.generation is None else "",
    )
    confidence = [text for text in said if text]
    return "\n".join(lines) + (" " + " ".join(escape(text) for text in confidence) if confidence else "")


def _capacity(analysis: Analysis) -> str:
    told = analysis.capacity
    if told is None:
        return ""
    details = " ".join(escape(text) for text in capacity_words.details(told))
    blocks = [
        f"## {escape(analysis.model.name)}: {escape(capacity_words.sentence(told))}",
        f"{escape(capacity_words.subject(told))}. {details}".rstrip(),
        _answer(capacity_words.figures(told)),
        *(_sheet(sheet, capacity_tables.MOST_OPTIONS) for sheet in capacity_tables.sheets(analysis)),
        "\n".join(f"- {escape(text)}" for text in capacity_words.notes(told)),
    ]
    return "\n\n".join(blocks)


def _generation(analysis: Analysis) -> str:
    told = analysis.generation
    if told is None:
        return ""
    prices = price_words.statement(analysis)
    blocks = [
        f"## {escape(analysis.model.name)}: {escape(generation_words.sentence(analysis, told))}",
        " ".join(escape(text) for text in (f"{generation_words.subject(told)}.", prices) if text),
        _answer(generation_words.figures(told)),
        *(_sheet(sheet, generation_tables.MOST_DEVICES) for sheet in generation_tables.sheets(analysis)),
        *(escape(text) for text in told.notes),
    ]
    return "\n\n".join(blocks)


def _answer(figures: Iterable[AnswerFigure]) -> str:
    rows = [
        (
            escape(figure.title),
            f"**{escape(figure_words.marked(figure.figure, figure.origin))}**",
            escape(figure.interval),
            escape(figure.note),
        )
        for figure in figures
    ]
    return table(("", "", "90 % interval, share", ""), rows, (1, 2))


def sheet_table(
    sheet: TextTable, most: float = math.inf, *, shown: int | None = None, noun: str = "rows"
) -> str:
    """A table of text, folded up where it has more rows than this.

    Args:
        sheet: The table.
        most: Rows that are not folded up.
        shown: How many of the rows are written; all for None.
        noun: What they are.
    """
    cells = [_cells(sheet, at) for at in range(len(sheet.rows))[:shown]]
    text = table([escape(name) for name in sheet.head], cells, sheet.figures)
    return _folded(f"{len(sheet.rows):,} {noun}", text) if len(cells) > most else text


def _folded(summary: str, text: str) -> str:
    # A pull request's thread is read by many who want the answer alone.
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def _sheet(sheet: TextTable, most: int) -> str:
    return f"### {escape(sheet.title)}\n\n{escape(sheet.lead)}\n\n{sheet_table(sheet, most)}"


def _cells(sheet: TextTable, at: int) -> list[str]:
    row = sheet.rows[at]
    beside = sheet.beside[at] if sheet.beside else [""] * len(row)
    cells = [f"{cell} ({more})" if more else cell for cell, more in zip(row, beside, strict=True)]
    return [f"**{escape(cell)}**" if at == sheet.chosen and cell else escape(cell) for cell in cells]


def _training(analysis: Analysis) -> str:
    blocks = []
    for sheet in training_tables.sheets(analysis):
        blocks += [f"### {sheet.title}\n\n{sheet_table(sheet)}", escape(sheet.lead)]
    blocks += [escape(text) for text in training_tables.statements(analysis)]
    return "\n\n".join(filter(None, blocks))


def _plans(analysis: Analysis) -> str:
    cards = ranking_words.table_cards(analysis)
    if not cards:
        return ""
    head = ("Plan", "Latency", "90 % interval", "Per second", "Memory", "$ per million", "Energy", "Origin")
    rows = [
        (
            f"**{escape(card.title)}**" if card.chosen else escape(card.title),
            card.latency,
            card.interval,
            card.throughput,
            card.memory if card.fits else f"{card.memory} **does not fit**",
            figure_words.marked(card.dollars, card.dollars_origin),
            figure_words.marked(card.energy, card.energy_origin),
            signed(card.origin),
        )
        for card in cards
    ]
    said = (plan_cards.priced_on(analysis), plan_cards.energy_of(analysis))
    return "\n\n".join((table(head, rows, range(1, 7)), *(escape(text) for text in said if text)))


def _ranking(analysis: Analysis) -> str:
    sheet = ranking_table.sheet(analysis)
    if sheet is None:
        return ""
    # Folded up: it has a row for every CPU that can be rented.
    summary = f"{escape(sheet.title)} ({len(sheet.rows)} rows)"
    return _folded(summary, f"{escape(sheet.lead)}\n\n{sheet_table(sheet)}")


def _devices(analysis: Analysis) -> str:
    """Every GPU, where there are several; of one the plans are the answer."""
    # Where everything is ranked they stand in the ranking.
    if not analysis.alternatives or analysis.ranking is not None:
        return ""
    sheet = device_rows.sheet(analysis)
    return f"### {sheet.title}\n\n{sheet_table(sheet, _MOST_DEVICES, noun='GPUs')}"


def _reasons(analysis: Analysis) -> str:
    lines = [f"- {escape(text)}" for text in verdict_words.reasons(analysis)]
    # Without the empty line Markdown takes the paragraph for more of the list's last item.
    if analysis.verdict.would_change:
        lines += ["", "What would change it:", ""]
        lines += [f"- {escape(text)}" for text in analysis.verdict.would_change]
    return "\n".join(lines).strip()


def _precisions(analysis: Analysis) -> str:
    rows = precision_rows.rows(analysis)
    if not rows:
        return ""
    head = (*precision_rows.HEAD, "Why")
    lines = [
        [f"**{escape(cell)}**" if row.decided and cell else escape(cell) for cell in precision_rows.cells(row)]
        + [escape(row.reason)]
        for row in rows
    ]
    shown = table(head, lines, range(2, 7))
    return _folded(precision_rows.TITLE, f"{precision_rows.LEAD}\n\n{shown}")


def _operators(analysis: Analysis) -> str:
    operators = leading_operators.top_operators(analysis)
    if not operators:
        return ""
    rows = [
        (
            # Without the sign of a number: "#7" would link to issue 7.
            escape(operator.label.replace("#", "")),
            escape(operator.place if operator.count > 1 else operator.module or operator.code),
            escape(operator.where),
            operator.share_text,
            f"{operator.cpu} {sign(operator.cpu_origin)}".strip(),
            f"{operator.gpu} {sign(operator.gpu_origin)}".strip(),
            operator.speedup,
            operator.verdict,
        )
        for operator in operators
    ]
    head = ("Operator", "Module", "Source", "Share", "CPU", "GPU", "CPU/GPU", "Verdict")
    types = any(operator.count > 1 for operator in operators)
    title = f"The {len(operators)} {'types of ' if types else ''}operators that matter most"
    return _folded(title, table(head, rows, (3, 4, 5, 6)))


def _findings(analysis: Analysis) -> str:
    if not analysis.findings:
        return ""
    lines = [
        f"- **{finding.severity}** `{_in_code(finding.code)}` {escape(finding.message)}. "
        f"Fix: {escape(finding.fix)}".rstrip()
        for finding in analysis.findings
    ]
    return "\n".join(["### Findings", "", *lines])


def _in_code(text: str) -> str:
    """Text between backticks, where no escape is read."""
    return printable(text).replace("`", "'")


def _footer(analysis: Analysis) -> str:
    totals, bound = analysis.totals, model_facts.at_least(analysis)
    lines = [
        f"{plural(totals.operators, 'operator')}, {bound}{flop_count(totals.flops)}, "
        f"{bound}{byte_count(totals.bytes_read + totals.bytes_written)} moved, "
        f"{count(analysis.model.parameters)} parameters."
    ]
    if folded := model_facts.folded(analysis):
        lines.append(f"{folded}.")
    lines += [escape(text) for text in model_facts.missing(analysis)]
    marks = ", ".join(f"{mark.sign} {mark.name}" for mark in MARKS.values())
    run = method.apply_command(analysis)
    if run:
        lines.append(f"\n\n{escape(method.apply_words(analysis))}: `{_in_code(run)}`")
    return (
        f"{' '.join(lines)}\n\n<sub>{marks}. {escape(analysis.tool.name)} {escape(analysis.tool.version)}</sub>"
    )
