"""Reporting: the analysis on a terminal, verdict first, then the ten operators that matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

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
from analyzer.report.ranking import table as ranking_table
from analyzer.report.ranking import words as ranking_words
from analyzer.report.summary import figure_words, leading_operators, model_facts, plan_cards, verdict_words
from analyzer.report.summary.figure_words import MARKS, sign, signed
from analyzer.report.summary.leading_operators import TopOperator
from analyzer.report.summary.plan_cards import PlanCard
from analyzer.text import loggable, middle_cut, module_cut, plural
from analyzer.units import byte_count, count, flop_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from analyzer.record.capacity import CapacityResult
    from analyzer.report.answer import AnswerFigure, TextTable

# A file or a pipe has no width of its own.
WIDTH = 100
# Cells of a bar. Eight eighths each (U+2588 to U+258F) make 64 steps, so that 2 % is still a stroke.
_BAR = 8
# The fewest columns that show an operator, a module, and those of a terminal with room for origins in words.
_FEWEST_OF_NAMES, _FEWEST_OF_MODULES, _ROOM_FOR_ORIGINS = 12, 8, 88
# Of the table of plans, what goes first where there is no room for all.
_DROPPED_FIRST = ("Energy", "Per s", "Memory", "90 % interval")
# The least of a device's name that still tells which it is.
_FEWEST = 16
# Of an answer's figures: behind a longer one, which is a name, no column is kept.
_LONGEST_FIGURE = 12
# Devices that one screen of a terminal holds.
_MOST_DEVICES = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"


def render(analysis: Analysis) -> str:
    """The report as plain text of at most 100 columns."""
    blocks = (
        *_capacity(analysis),
        *_generation(analysis),
        _heading(analysis),
        _ranking(analysis),
        _plans(analysis),
        "\n".join(_devices(analysis)),
        _reasons(analysis),
        _training(analysis),
        _precisions(analysis),
        _top(analysis),
        _findings(analysis),
        _footer(analysis),
    )
    return loggable("\n\n".join(block for block in blocks if block)) + "\n"


def bar(part: float | None, width: int = _BAR) -> str:
    """A horizontal bar of at most ``width`` cells for a share between 0 and 1."""
    if part is None:
        return " " * width
    eighths = round(min(max(part, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return text.ljust(width)


def _heading(analysis: Analysis) -> str:
    step = _step(analysis)
    if step:
        lines = [
            *_wrapped(f"{step}: {analysis.verdict.sentence}"),
            *_wrapped(verdict_words.errors(analysis)),
        ]
    else:
        name = [clean(f"{analysis.model.name}: {verdict_words.subject(analysis)}"), ""]
        lines = [*name, *_wrapped(ranking_words.sentence(analysis))]
        lines += _wrapped(verdict_words.errors(analysis))
        for text in ranking_words.beside(analysis):
            lines += _wrapped(text)
    lines += _wrapped(f"{verdict_words.confidence(analysis)} {verdict_words.crossover(analysis)}")
    for text in model_facts.statements(analysis):
        lines += _wrapped(text)
    if analysis.generation is None:
        lines += _wrapped(price_words.statement(analysis))
    return "\n".join(lines)


def _step(analysis: Analysis) -> str:
    """What the verdict is about where another answer stands above it; empty elsewhere."""
    if analysis.generation is not None:
        return generation_words.step(analysis.generation)
    return capacity_words.RUN if analysis.capacity is not None else ""


def _reasons(analysis: Analysis) -> str:
    verdict = analysis.verdict
    lines = ["Why"]
    for text in verdict_words.reasons(analysis):
        lines += _wrapped(text, first="  - ", rest="    ")
    if verdict.would_change:
        lines.append("What would change it")
        for text in verdict.would_change:
            lines += _wrapped(text, first="  - ", rest="    ")
    return "\n".join(lines) if len(lines) > 1 else ""


def _plans(analysis: Analysis) -> str:
    cards = ranking_words.table_cards(analysis)
    if not cards:
        return ""
    head = ("", "latency", "90 % interval", "per second", "memory", "$/million", "energy", "origin")
    # One mark is one answer's: where the ranking is the answer, the mark stands there.
    marked_here = not ranking_words.leads(analysis)
    rows = [
        (
            f"{'> ' if card.chosen and marked_here else '  '}{card.title}",
            card.latency,
            card.interval,
            card.throughput,
            card.memory + ("" if card.fits else " (does not fit)"),
            figure_words.marked(card.dollars, card.dollars_origin),
            figure_words.marked(card.energy, card.energy_origin),
            signed(card.origin),
        )
        for card in cards
    ]
    said = (plan_cards.priced_on(analysis), plan_cards.energy_of(analysis))
    below = [line for text in said if text for line in _wrapped(text, first="  ", rest="  ")]
    return "\n".join((*table(head, rows, right=range(1, 7)), *below))


def _ranking(analysis: Analysis) -> str:
    sheet = ranking_table.terminal_sheet(analysis)
    if sheet is None:
        return ""
    return "\n".join(_ranked(sheet, WIDTH))


def _ranked(sheet: TextTable, width: int) -> list[str]:
    """The ranking as lines: the notes, which are sentences, stand below."""
    marks = ["> " if at == sheet.chosen else "  " for at in range(len(sheet.rows))]
    rows = [(f"{mark}{row[0]}", *row[1:-1]) for mark, row in zip(marks, sheet.rows, strict=True)]
    head = (f"  {sheet.head[0].lower()}", *(name.lower() for name in sheet.head[1:-1]))
    lines = _sheet(replace(sheet, head=head, rows=tuple(rows)), width)
    told: dict[str, str] = {}
    for row in sheet.rows:
        # A limit that is missed is told by the order and the figure; of several batches the first note does.
        if row[-1] and not row[-1].startswith("misses"):
            told.setdefault(row[0], row[-1].partition("; misses")[0])
    for name, note in told.items():
        lines += _wrapped(f"{name}: {note}.", first="  - ", rest="    ")
    return lines


def _capacity(analysis: Analysis) -> tuple[str, ...]:
    """Which instances and how many; nothing for a record that was not asked for them."""
    told = analysis.capacity
    if told is None:
        return ()
    lines = [*_wrapped(f"{analysis.model.name}: {capacity_words.subject(told)}"), ""]
    lines += _wrapped(" ".join((capacity_words.sentence(told), *capacity_words.details(told))))
    blocks = ["\n".join(lines), "\n".join(_figures(capacity_words.figures(told), WIDTH))]
    blocks += ["\n".join(_sheet(sheet, WIDTH)) for sheet in capacity_tables.terminal_sheets(analysis)]
    blocks.append("\n".join(_refused(told)))
    return (*blocks, "\n".join(line for text in capacity_words.notes(told) for line in _wrapped(text)))


def _refused(told: CapacityResult) -> list[str]:
    """What of the options is no answer, and why where none is one."""
    lines = _wrapped(capacity_words.refused(told))
    for text in capacity_tables.reasons(told):
        lines += _wrapped(text, first="  - ", rest="    ")
    return lines


def _devices(analysis: Analysis, most: int | None = None, width: int = WIDTH) -> list[str]:
    """Every GPU, where there are several; of one the plans are the answer."""
    every = device_rows.rows(analysis)
    # Where everything is ranked they stand in the ranking.
    if len(every) < 2 or analysis.ranking is not None:
        return []
    shown = every if most is None else device_rows.quickest(every, most)
    lines = [device_rows.TITLE]
    for said in device_rows.sentences(shown, analysis):
        lines += _wrapped(said, first="  - ", rest="    ", width=width)
    if len(shown) < len(every):
        lines.append(f"These are the fastest of {len(every)}; the reports have all.")
    return lines


def _generation(analysis: Analysis) -> tuple[str, ...]:
    """The answer for a model that generates; nothing for another."""
    told = analysis.generation
    if told is None:
        return ()
    title = clean(f"{analysis.model.name}: {generation_words.subject(told)}")
    lines = [title, "", *_wrapped(generation_words.sentence(analysis, told))]
    lines += _wrapped(price_words.statement(analysis))
    blocks = ["\n".join(lines), "\n".join(_figures(generation_words.figures(told), WIDTH))]
    blocks += ["\n".join(_sheet(sheet, WIDTH)) for sheet in generation_tables.terminal_sheets(analysis)]
    return (*blocks, "\n".join(line for text in told.notes for line in _wrapped(text)))


def _figures(figures: Iterable[AnswerFigure], width: int) -> list[str]:
    """The figures of an answer, one a line, with what is told of each."""
    import textwrap

    lines = []
    for figure in figures:
        value = figure_words.marked(figure.figure, figure.origin)
        interval = f"({figure.interval}) " if figure.interval else ""
        if len(value) > _LONGEST_FIGURE:
            value = f"{value}:"
        said = clean(f"{figure.name:<16}{value:<{_LONGEST_FIGURE}} {interval}{figure.note}".rstrip())
        lines += textwrap.wrap(said, width, subsequent_indent=" " * 16)
    return lines


def _sheet(sheet: TextTable, width: int) -> list[str]:
    """A table of options: its first column is cut where the others leave no room for it."""
    others = [max(map(len, column)) + 2 for column in zip(sheet.head, *sheet.rows, strict=True)][1:]
    first = max(width - sum(others), _FEWEST)
    head, rows = sheet.head, [(_shortened(row[0], first), *row[1:]) for row in sheet.rows]
    return [sheet.title, *table(head, rows, right=sheet.figures)]


def _shortened(text: str, limit: int) -> str:
    # The beginning is kept: of a device's name it is what tells one from the next.
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _training(analysis: Analysis) -> str:
    lines: list[str] = []
    for sheet in training_tables.sheets(analysis):
        lines += [*_sheet(sheet, WIDTH), *_wrapped(sheet.lead), ""]
    for text in training_tables.statements(analysis):
        lines += _wrapped(text)
    return "\n".join(lines).strip()


def _precisions(analysis: Analysis) -> str:
    rows = precision_rows.rows(analysis)
    if not rows:
        return ""
    cells = [
        (f"{row.precision}{' (as asked)' if row.decided else ''}", *precision_rows.cells(row)[1:])
        for row in rows
    ]
    head = [name.lower() for name in precision_rows.HEAD]
    lines = table(head, cells, right=range(2, 7))
    # What does not run says why, and so does what is slower than the model as it is: the rest is on the page.
    said = (row for row in rows if not row.runs or row.slower)
    reasons = [
        line
        for row in said
        for line in _wrapped(f"{row.precision} on the {row.device}: {row.reason}.", first="  - ", rest="    ")
    ]
    return "\n".join([precision_rows.TITLE, *lines, *reasons])


def _top(analysis: Analysis) -> str:
    operators = leading_operators.top_operators(analysis)
    if not operators:
        return ""
    head = ("operator", "module", "share of time", "CPU", "GPU", "CPU/GPU", "verdict")
    rows = [
        (
            operator.label,
            operator.place,
            f"{bar(operator.share)} {operator.share_text}",
            f"{operator.cpu} {sign(operator.cpu_origin) or ' '}",
            f"{operator.gpu} {sign(operator.gpu_origin) or ' '}",
            operator.speedup,
            operator.verdict,
        )
        for operator in operators
    ]
    # Modules give way to verdicts that are longer than their heading.
    verdicts = max(map(len, (head[-1], *(operator.verdict for operator in operators))))
    lines = table(head, rows, right=(3, 4, 5), widest={0: 22, 1: 22 - verdicts + len(head[-1])})
    whose = f"{plan_cards.whose_time(analysis)}{leading_operators.by_type_words(operators)}"
    return "\n".join([f"The operators that take most of {whose}", *lines])


def _findings(analysis: Analysis) -> str:
    if not analysis.findings:
        return ""
    lines = ["Findings"]
    for finding in analysis.findings:
        lines += _wrapped(
            f"{finding.severity} {finding.code}: {finding.message}. Fix: {finding.fix}", first="  ", rest="    "
        )
    return "\n".join(lines)


def _footer(analysis: Analysis) -> str:
    totals, bound = analysis.totals, model_facts.at_least(analysis)
    lines = [
        f"{plural(totals.operators, 'operator')}, {bound}{flop_count(totals.flops)} "
        f"({bound}{count(totals.macs)} "
        f"multiply-accumulates), {bound}{byte_count(totals.bytes_read + totals.bytes_written)} moved, "
        f"{count(analysis.model.parameters)} parameters"
    ]
    if folded := model_facts.folded(analysis):
        lines.append(f"Computed in each run; {folded}.")
    lines += model_facts.missing(analysis)
    lines.append("  ".join(f"{mark.sign} {mark.name}" for mark in MARKS.values()))
    wrapped = [line for text in lines for line in _wrapped(text)]
    # On one line of its own, to be copied.
    run = method.apply_command(analysis)
    return "\n".join([*wrapped, *([f"{clean(method.apply_words(analysis))}: {clean(run)}"] if run else [])])


def clean(text: str) -> str:
    """User text without control characters: a model's names must not drive the terminal."""
    # A mark and not a blank: the columns stay, and a reader sees that something was there.
    return loggable("".join(char if char.isprintable() else "?" for char in text))


def _wrapped(text: str, *, first: str = "", rest: str = "", width: int = WIDTH) -> list[str]:
    import textwrap

    return textwrap.wrap(clean(text), width, initial_indent=first, subsequent_indent=rest)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[int] = (),
    widest: dict[int, int] | None = None,
) -> list[str]:
    """Lines of an aligned table; columns in ``right`` are flush right, those in ``widest`` are cut."""
    widest, flush_right = widest or {}, set(right)
    cells = [[_cut(clean(cell), widest.get(at)) for at, cell in enumerate(row)] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if at in flush_right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _cut(text: str, limit: int | None) -> str:
    # The end is kept: of ``encoder.layers.11.attention`` it is what tells one module from the next.
    return text if limit is None or len(text) <= limit else f"…{text[1 - limit :]}"


def print_summary(analysis: Analysis, console: Console) -> None:
    """The verdict, the plans and the ten operators that matter, in colour on a rich console."""
    if analysis.capacity is not None or analysis.generation is not None:
        _print_service(analysis, console)
        return
    texts = (
        *ranking_words.beside(analysis),
        verdict_words.confidence(analysis),
        verdict_words.crossover(analysis),
        model_facts.open_sizes(analysis),
        model_facts.decided_sizes(analysis),
        model_facts.inputs_line(analysis),
        model_facts.guessed_inputs(analysis),
        model_facts.whose_step(analysis),
        model_facts.state(analysis),
        *verdict_words.reasons(analysis),
    )
    lines = [_markup(ranking_words.sentence(analysis), "bold"), *_errors(analysis)]
    lines += [_markup(text) for text in texts if text]
    _print_panel(lines, f"{analysis.model.name} · {verdict_words.subject(analysis)}", console)
    ranked = ranking_table.terminal_sheet(analysis) if ranking_words.leads(analysis) else None
    if ranked is not None:
        _print_sheet(_ranked(ranked, console.width), console)
    operators = leading_operators.top_operators(analysis)
    _print_plans(analysis, console)
    if devices := _devices(analysis, _MOST_DEVICES, console.width):
        console.print("\n" + "\n".join(devices), markup=False, highlight=False)
    # The phases alone: the other tables of a training step are in the report, a terminal shows one screen.
    phases = next(iter(training_tables.sheets(analysis)), None)
    if phases is not None:
        console.print("\n" + "\n".join(table(phases.head, phases.rows, right=phases.figures)))
    if operators:
        console.print(_rich_top(operators, console.width, plan_cards.whose_time(analysis)))
    _print_end(analysis, console)
    if run := method.apply_command(analysis):
        # Not broken by us: a line that is copied must stay one.
        console.print(
            f"{clean(method.apply_words(analysis))}: {clean(run)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _print_service(analysis: Analysis, console: Console) -> None:
    """The answer of a service, or of a model that generates; of one run the verdict and the plans alone."""
    title, below = analysis.model.name, list[str]()
    if (told := analysis.capacity) is not None:
        # The question is longer than a title has room for.
        lines = [_markup(capacity_words.subject(told)), _markup(capacity_words.sentence(told), "bold")]
        lines += [_markup(text) for text in capacity_words.details(told)]
        figures, sheets = capacity_words.figures(told), capacity_tables.terminal_sheets(analysis)
        below = [*filter(None, (capacity_words.refused(told), *capacity_tables.reasons(told)))]
    elif (generation := analysis.generation) is not None:
        title = f"{title} · {generation_words.subject(generation)}"
        lines = [_markup(generation_words.sentence(analysis, generation), "bold")]
        figures, sheets = generation_words.figures(generation), generation_tables.terminal_sheets(analysis)
    # Two for the panel's edges and two for its padding.
    lines += [_markup(line) for line in _figures(figures, console.width - 4)]
    _print_panel(lines, title, console)
    for sheet in sheets:
        _print_sheet(_sheet(sheet, console.width), console)
    for text in (*below, f"{_step(analysis)}: {analysis.verdict.sentence}"):
        console.print(_markup(text))
    for text in _errors(analysis):
        console.print(text)
    _print_plans(analysis, console)
    _print_end(analysis, console)


def _markup(text: str, style: str = "") -> str:
    """A text of the record as rich's markup, whose [brackets] a name of the model may hold."""
    from rich.markup import escape

    shown = escape(clean(text))
    return f"[{style}]{shown}[/{style}]" if style else shown


def _errors(analysis: Analysis) -> list[str]:
    wrong = verdict_words.errors(analysis)
    return [_markup(wrong, "bold red")] if wrong else []


def _print_panel(lines: Sequence[str], title: str, console: Console) -> None:
    from rich.panel import Panel

    console.print(Panel("\n".join(lines), title=_markup(title), title_align="left"))


def _print_sheet(lines: Sequence[str], console: Console) -> None:
    heading, *rows = lines
    console.print(_markup(heading, "bold"))
    console.print("\n".join(map(_markup, rows)), highlight=False, no_wrap=True, overflow="ellipsis")
    console.print()


def _print_plans(analysis: Analysis, console: Console) -> None:
    if cards := ranking_words.table_cards(analysis):
        console.print(_rich_plans(cards, console.width))
        # A line of its own: a terminal has no room for the names in the table.
        console.print(_markup(plan_cards.priced_on(analysis)), style="dim", highlight=False)


def _print_end(analysis: Analysis, console: Console) -> None:
    for gap in model_facts.missing(analysis):
        console.print(_markup(gap), style="yellow")
    console.print("  ".join(f"{mark.sign} {mark.name}" for mark in MARKS.values()), style="dim")


def _widest(title: str, cells: Iterable[str]) -> int:
    """Columns that a rich table needs for these cells and the blanks before the next."""
    return max(map(len, (title, *cells))) + 2


def _rich_plans(cards: Sequence[PlanCard], width: int) -> Table:
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    # On a narrow terminal the sign alone tells the origin; the legend below says what it means.
    narrow = width < _ROOM_FOR_ORIGINS
    columns = {
        "Plan": [card.title for card in cards],
        "Latency": [card.latency for card in cards],
        "90 % interval": [card.interval for card in cards],
        "Per s": [card.throughput for card in cards],
        "Memory": [card.memory if card.fits else f"{card.memory}!!" for card in cards],
        "$/million": [figure_words.marked(card.dollars, card.dollars_origin) for card in cards],
        "Energy": [figure_words.marked(card.energy, card.energy_origin) for card in cards],
        "" if narrow else "Origin": [
            sign(card.origin) if narrow else f"{sign(card.origin)} {card.origin}" for card in cards
        ],
    }
    for title in _DROPPED_FIRST:  # a figure that is cut is none
        if sum(_widest(name, cells) for name, cells in columns.items()) <= width + 1:
            break
        del columns[title]
    for title in columns:
        left = title in ("Plan", "", "Origin")
        grid.add_column(title, justify="left" if left else "right", no_wrap=True)
    for index, card in enumerate(cards):
        row = [cells[index] for cells in columns.values()]
        row = [f"[red]{cell}[/red]" if cell.endswith("!!") else cell for cell in row]
        grid.add_row(*row, style="bold" if card.chosen else "")
    if any(not card.fits for card in cards):
        grid.caption = "!! does not fit into the device's memory"
    return grid


def _rich_top(operators: Sequence[TopOperator], width: int, time: str) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    title = f"\nWhere {time} goes{leading_operators.by_type_words(operators)}"
    grid = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    # Figures stay whole; what is left goes to the operator and its module.
    names = [clean(operator.label) for operator in operators]
    figures = {
        "Share": [f"{bar(operator.share, 6)} {operator.share_text:>5}" for operator in operators],
        "CPU": [f"{operator.cpu} {sign(operator.cpu_origin) or ' '}" for operator in operators],
        "GPU": [f"{operator.gpu} {sign(operator.gpu_origin) or ' '}" for operator in operators],
        "Ratio": [operator.speedup for operator in operators],
        "Verdict": [operator.verdict for operator in operators],
    }

    def room() -> int:
        return width + 1 - sum(_widest(name, cells) for name, cells in figures.items())

    if room() < _FEWEST_OF_NAMES + _FEWEST_OF_MODULES + 4:  # names tell more than bars
        figures["Share"] = [operator.share_text for operator in operators]
    for title in ("Ratio", "Share"):
        if room() < _FEWEST_OF_NAMES + 2:
            del figures[title]
    of_names = min(max(map(len, names)), max(room() - _FEWEST_OF_MODULES - 4, _FEWEST_OF_NAMES))
    of_modules = room() - of_names - 4
    grid.add_column("Operator", width=of_names, no_wrap=True)
    if of_modules >= _FEWEST_OF_MODULES:
        grid.add_column("Module", width=of_modules, no_wrap=True)
    for title in figures:
        grid.add_column(title, justify="left" if title == "Verdict" else "right", no_wrap=True)
    for index, (operator, name) in enumerate(zip(operators, names, strict=True)):
        room_of_place = max(of_modules, _FEWEST_OF_MODULES)
        place = operator.place_in(room_of_place) if operator.count > 1 else operator.place
        module = clean(place)
        grid.add_row(
            escape(middle_cut(name, of_names)),
            *((escape(module_cut(module, of_modules)),) if of_modules >= _FEWEST_OF_MODULES else ()),
            *(cells[index] for cells in figures.values()),
            style={"cpu": "cyan", "gpu": "yellow"}.get(operator.device, ""),
        )
    return grid
