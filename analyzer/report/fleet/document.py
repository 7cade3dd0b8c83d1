"""Reporting: the document of a fleet: answer, moves, models, failures, shared machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzer.record.fleet import Fleet, FleetModel, Move, PackedModel
from analyzer.report import markdown
from analyzer.report.document import (
    ANSWER,
    SCREEN,
    Block,
    Column,
    Document,
    Headline,
    Section,
    Table,
    Text,
    amount,
    items,
    table,
    texts,
)
from analyzer.report.fleet import words
from analyzer.text import plural
from analyzer.units import UNKNOWN, byte_count, digits, dollars, seconds, share, span

# Rows of one screen, and of a document: GitHub cuts a comment at 65,536 characters, and the page has all.
_ON_SCREEN, _IN_ALL, _MOST_FAILURES = 30, 200, 50
# Above so many rows Markdown folds a table up.
_MOST_ROWS = 12
_TONES = {"cpu": "cpu", "gpu": "gpu"}


def render_markdown(fleet: Fleet) -> str:
    """Return a fleet as GitHub's Markdown."""
    return markdown.markdown(document(fleet))


def document(fleet: Fleet) -> Document:
    """Return the document of a fleet."""
    return Document.of(
        words.title(fleet),
        Section(name="answer", blocks=tuple(_answer(fleet))),
        Section(name="changes", blocks=tuple(items("What changed", fleet.changes, detail=SCREEN))),
        Section(name="moves", blocks=tuple(_moves(fleet))),
        Section(name="models", blocks=tuple(_models(fleet))),
        Section(name="failures", blocks=tuple(_failures(fleet))),
        Section(name="shared", title="Shared machines", blocks=tuple(_shared(fleet))),
        Section(name="biases", blocks=tuple(_biases(fleet))),
        Section(
            name="rests",
            blocks=tuple(
                texts(
                    words.pricing(fleet),
                    f"{fleet.tool.name} {fleet.tool.version}",
                    style="small",
                    detail=SCREEN,
                )
            ),
        ),
    )


def _answer(fleet: Fleet) -> Iterator[Block]:
    first, *more = words.answer(fleet)
    yield Headline(name="Fleet", subject=words.counted(fleet), sentence=first, detail=ANSWER)
    yield from texts(*more, words.left(fleet), detail=ANSWER)


def _moves(fleet: Fleet) -> Iterator[Block]:
    """Yield models that would cost less elsewhere, the most saved first."""
    if not fleet.moves:
        return
    names = words.device_names(fleet)
    models = {model.name: model for model in fleet.models}

    def way(move: Move) -> str:
        cell = models[move.model].cells[move.cell]
        return ", ".join(filter(None, (words.where(cell, names), words.plan(cell))))

    yield table(
        fleet.moves,
        (
            Column("Model", lambda move: move.model, None, lambda move: models[move.model].owner, figure=False),
            Column(
                "Today",
                lambda move: words.instances(move.today_count, move.today_instance),
                lambda move: move.today_instance,
                figure=False,
            ),
            amount("$ a month today", "today_usd_per_month", dollars, drop=2),
            Column(
                "Should run on",
                lambda move: words.instances(move.count, move.instance),
                lambda move: move.instance,
                way,
                figure=False,
            ),
            amount("$ a month there", "usd_per_month", dollars, drop=3),
            amount("Saved a month", "saved_usd_per_month", dollars),
            Column(
                "Certain",
                lambda move: "yes" if move.certain else "no: within the 90 % interval",
                drop=1,
                figure=False,
            ),
        ),
        name="moves",
        title="Models that would cost less elsewhere",
        links=tuple(words.page_of(move.model) for move in fleet.moves),
        lead=(
            "Each keeps its limits there. "
            "A move is certain where even the upper end of the 90 % interval saves."
        ),
        shown=tuple(range(min(len(fleet.moves), _MOST_ROWS))),
        most=_MOST_ROWS,
        detail=SCREEN,
    )


def _models(fleet: Fleet) -> Iterator[Block]:
    """Yield a row for each model: its verdict, its cheapest device, its times and dollars there."""
    if not fleet.models:
        return
    names = words.device_names(fleet)
    listed = most_wanted(fleet, _IN_ALL)
    wanted = {model.name for model in most_wanted(fleet, _ON_SCREEN)}
    yield Table(
        name="models",
        title="Every model" if len(listed) == len(fleet.models) else f"{len(listed)} of the models",
        head=("Model", "Verdict", "Cheapest device", "Latency", "Dollars", "Note"),
        rows=tuple(_row(model, names) for model in listed),
        figures=(3, 4),
        drop=(0, 0, 0, 1, 0, 2),
        tones=tuple(_TONES.get(model.device, "") for model in listed),
        links=tuple("" if model.failure else words.page_of(model.name) for model in listed),
        shown=tuple(at for at, model in enumerate(listed) if model.name in wanted),
        most=_MOST_ROWS,
        detail=SCREEN,
    )
    if len(listed) < len(fleet.models):
        yield Text(text=f"The page has all {len(fleet.models):,} models.")


def _row(model: FleetModel, names: Mapping[str, str]) -> tuple[str, ...]:
    cell = words.shown_cell(model)
    verdict = "failed" if model.failure else words.VERDICTS.get(model.device, model.device) or UNKNOWN
    where, latency, money = UNKNOWN, UNKNOWN, UNKNOWN
    if cell is not None:
        where, latency, money = words.where(cell, names), words.latency(model, cell), words.money(model, cell)
    return model.name, verdict, where, latency, money, words.note(model, names)


def most_wanted(fleet: Fleet, most: int) -> tuple[FleetModel, ...]:
    """Return all models; of too many those that should move first, then those that failed, then the others."""
    if len(fleet.models) <= most:
        return fleet.models
    moved = {move.model: at for at, move in enumerate(fleet.moves)}

    def order(model: FleetModel) -> tuple[int, int]:
        if model.name in moved:
            return 0, moved[model.name]
        return (1, 0) if model.failure is not None else (2, 0)

    return tuple(sorted(fleet.models, key=order)[:most])


def _failures(fleet: Fleet) -> Iterator[Block]:
    failures = words.failed(fleet)
    shown = [
        (model.name, f"{words.FAILURES[one.kind]}: {one.message} {one.hint}".rstrip())
        for model in failures[:_MOST_FAILURES]
        if (one := model.failure) is not None
    ]
    more = [f"{len(failures) - len(shown):,} more"] if len(failures) > len(shown) else []
    yield from items("What failed", (*shown, *more), detail=SCREEN)


def _shared(fleet: Fleet) -> Iterator[Block]:
    """Return who shares which machines."""
    packed = fleet.consolidation
    if packed is None:
        return
    yield from texts(*words.consolidated(fleet))
    names = words.device_names(fleet)
    models = {model.name: model for model in fleet.models}
    rows = [(machine, one) for machine in packed.instances for one in machine.models]
    if rows:
        yield table(
            rows,
            (
                Column("Model", lambda row: row[1].model, figure=False),
                Column(
                    "Machine",
                    lambda row: (
                        words.instances(row[0].count, row[0].instance)
                        + (f" ({row[0].provider})" if row[0].provider else "")
                    ),
                    None,
                    lambda row: names.get(row[0].device, row[0].device),
                    figure=False,
                ),
                Column("$ a month", lambda row: dollars(row[0].usd_per_month), None, drop=1),
                Column("Share of the device", lambda row: share(row[1].share), lambda row: row[1].share),
                Column("Traffic", lambda row: words.requests(row[1].rate), lambda row: row[1].rate, drop=3),
                Column("Memory", lambda row: byte_count(row[1].memory_bytes), None, drop=2),
                Column("Latency with all that share it", lambda row: _within(models[row[1].model], row[1])),
            ),
            name="shared",
            title="Models on shared machines",
            links=tuple(words.page_of(one.model) for _, one in rows),
            most=_MOST_ROWS,
        )
    yield from items("How they are packed", packed.notes)
    yield from items("Left out", tuple(packed.left_out.items()))


def _within(model: FleetModel, one: PackedModel) -> str:
    if one.latency_s is None:
        return UNKNOWN
    limit = model.traffic.limit_s if model.traffic is not None else None
    latency = f"{words.percentile(model)} {seconds(one.latency_s)}".strip()
    return f"{latency}, limit {seconds(limit)}" if limit is not None else latency


def _biases(fleet: Fleet) -> Iterator[Block]:
    """Yield measured times against predicted ones."""
    names = words.device_names(fleet)
    if fleet.biases:
        yield Table(
            name="biases",
            title="Measured against predicted",
            head=("Device", "Models measured", "Measured / predicted", "90 % interval"),
            rows=tuple(
                (
                    names.get(bias.device, bias.device),
                    plural(bias.models, "model"),
                    digits(bias.ratio),
                    span(digits(bias.low), digits(bias.high)),
                )
                for bias in fleet.biases
            ),
            figures=(2, 3),
            lead=(
                "Where models were measured on a device, this is how their times compare with what was "
                "predicted: above 1 they took longer."
            ),
        )
