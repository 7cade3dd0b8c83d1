"""Reporting: a fleet on a terminal: the answer, a row for each model, what failed and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analyzer.record.fleet import Fleet, FleetModel
from analyzer.report.fleet import sheets, words
from analyzer.report.text import clean
from analyzer.text import middle_cut
from analyzer.units import UNKNOWN, dollars, seconds

if TYPE_CHECKING:
    from rich.console import Console

# Rows of one screen; the page has all.
MOST_MODELS, MOST_MOVES, MOST_FAILURES = 30, 10, 10
# From here on there is room for notes beside the figures.
_WITH_NOTES = 100
_NAME, _DEVICE, _FEWEST = 26, 18, 12
HEAD = ("Model", "Verdict", "Cheapest on", "Batch", "Latency", "Dollars", "Note")
# Shorter than on the page; a line below says what they mean.
_SHORTENED = {"run": "/M inf.", "generate": "/M tok."}
_PER = {**words.PER_SHORT, **_SHORTENED}


def print_fleet(fleet: Fleet, console: Console) -> None:
    """The answer in sentences, then what should move, every model and what failed, on a rich console."""
    from rich.markup import escape

    first, *more = words.answer(fleet)
    console.print(f"[bold]{escape(_clean(first))}[/bold]")
    for text in filter(None, (*more, words.left(fleet))):
        console.print(escape(_clean(text)), highlight=False)
    _print_moves(fleet, console)
    _print_models(fleet, console)
    _print_failures(fleet, console)
    console.print(escape(words.pricing(fleet)), style="dim", highlight=False)


def _print_moves(fleet: Fleet, console: Console) -> None:
    if not fleet.moves:
        return
    shown = fleet.moves[:MOST_MOVES]
    rows = [
        (
            middle_cut(move.model, _NAME),
            middle_cut(words.instances(move.today_count, move.today_instance), _DEVICE),
            middle_cut(words.instances(move.count, move.instance), _DEVICE),
            f"{dollars(move.saved_usd_per_month)}{'' if move.certain else ' ?'}",
        )
        for move in shown
    ]
    _print_table(
        console, "What should move", ("Model", "Today", "Should run on", "$/month saved"), rows, right={3}
    )
    if not all(move.certain for move in shown):
        console.print(f"? {sheets.CERTAIN[False].removeprefix('no: ')}", style="dim", highlight=False)
    _say_rest(console, len(fleet.moves) - len(shown), "move")


def _print_models(fleet: Fleet, console: Console) -> None:
    if not fleet.models:
        return
    names = words.device_names(fleet)
    chosen = most_wanted(fleet, MOST_MODELS)
    wide = console.width >= _WITH_NOTES
    rows = _fitted([_row(model, names, wide=wide) for model in chosen], console.width)
    _print_table(console, "Models", HEAD[: len(rows[0])], rows, right={3, 4, 5})
    _say_rest(console, len(fleet.models) - len(chosen), "model")
    asked = dict.fromkeys(model.question for model in chosen if words.shown_cell(model) is not None)
    said = "; ".join(f"{_PER[question]}: {words.PER[question]}" for question in asked if question in _SHORTENED)
    if said:
        console.print(said, style="dim", highlight=False)


def _row(model: FleetModel, names: dict[str, str], *, wide: bool) -> tuple[str, ...]:
    cell, note = words.shown_cell(model), words.note(model, names)
    if model.failure is not None:
        return model.name, "failed", words.FAILURES[model.failure.kind], "", "", "", model.failure.message
    verdict = words.VERDICTS.get(model.device, model.device) or UNKNOWN
    if cell is None:
        return model.name, verdict, "no answer" if model.cells else UNKNOWN, "", "", "", note
    batch = "" if cell.batch is None else f"{cell.batch:,}"
    latency = words.latency(model, cell)
    if cell.ttft_s is not None and not wide:
        latency = f"TTFT {seconds(cell.ttft_s)}"
    value = words.amount(cell)
    money = UNKNOWN if value is None else f"{dollars(value)} {_PER[words.unit(model, cell)]}"
    return model.name, verdict, names[cell.device], batch, latency, money, note


def _fitted(rows: Sequence[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """The rows cut to a terminal: figures whole, then the notes go, then the middle of long names."""
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    device = min(widths[2], _DEVICE)
    # Two blanks behind each column, one behind the last.
    figures = sum(widths[at] + 2 for at in (1, 3, 4, 5)) + device + 2
    name = max(min(widths[0], width - figures - 1), _FEWEST)
    note = width - figures - name - 3
    if width < _WITH_NOTES or note < _FEWEST:
        note = 0
    return [
        (
            middle_cut(row[0], name),
            row[1],
            middle_cut(row[2], device),
            *row[3:6],
            *([_end_cut(row[6], note)] if note else []),
        )
        for row in rows
    ]


def _print_failures(fleet: Fleet, console: Console) -> None:
    from rich.markup import escape

    failures = words.failed(fleet)
    if not failures:
        return
    console.print("\n[bold]What failed[/bold]")
    for model in failures[:MOST_FAILURES]:
        failure = model.failure
        if failure is not None:
            said = f"  {model.name}: {words.FAILURES[failure.kind]}: {failure.message} {failure.hint}"
            console.print(escape(_clean(said.rstrip())), highlight=False)
    _say_rest(console, len(failures) - MOST_FAILURES, "failure")


def _print_table(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, right: set[int]
) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    grid = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title=f"\n{title}", title_justify="left"
    )
    for at, name in enumerate(head):
        grid.add_column(
            name, justify="right" if at in right else "left", no_wrap=True, overflow="ellipsis", min_width=0
        )
    for row in rows:
        style = {"CPU": "cyan", "GPU": "yellow", "failed": "red"}.get(row[1], "")
        grid.add_row(*(escape(_clean(text)) for text in row), style=style)
    console.print(grid)


def _say_rest(console: Console, number: int, noun: str) -> None:
    if number > 0:
        console.print(
            f"… and {number:,} more {noun if number == 1 else f'{noun}s'}: the page has all.",
            style="dim",
            highlight=False,
        )


def most_wanted(fleet: Fleet, most: int) -> tuple[FleetModel, ...]:
    """All models by name; of too many those that should move, then those that failed, then the others."""
    if len(fleet.models) <= most:
        return fleet.models
    moved = {move.model: at for at, move in enumerate(fleet.moves)}

    def order(model: FleetModel) -> tuple[int, int]:
        if model.name in moved:
            return 0, moved[model.name]
        return (1, 0) if model.failure is not None else (2, 0)

    return tuple(sorted(fleet.models, key=order)[:most])


def _end_cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _clean(text: str) -> str:
    # A wrapped line may begin anywhere: nowhere do the two colons stand by which a CI server knows a command.
    return clean(text).replace("::", ": :")
