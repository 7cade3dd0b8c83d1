"""A fleet's document and its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analyzer.record.fleet import Fleet, FleetModel, Move, PackedModel
from analyzer.report import figure_text, fleet_tables, markdown
from analyzer.report.charts.chart import coded, compact
from analyzer.report.document import (
    ANSWER,
    SCREEN,
    AnswerFigure,
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
from analyzer.report.figure_text import MARKS, origin_note
from analyzer.report.html import environment
from analyzer.report.method import Fact
from analyzer.text import first_few, plural
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
        fleet_tables.title(fleet),
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
                    fleet_tables.pricing(fleet),
                    f"{fleet.tool.name} {fleet.tool.version}",
                    style="small",
                    detail=SCREEN,
                )
            ),
        ),
    )


def _answer(fleet: Fleet) -> Iterator[Block]:
    first, *more = fleet_tables.answer(fleet)
    yield Headline(name="Fleet", subject=fleet_tables.counted(fleet), sentence=first, detail=ANSWER)
    yield from texts(*more, fleet_tables.left(fleet), detail=ANSWER)


def _moves(fleet: Fleet) -> Iterator[Block]:
    """Yield models that would cost less elsewhere, the most saved first."""
    if not fleet.moves:
        return
    names = fleet_tables.device_names(fleet)
    models = {model.name: model for model in fleet.models}

    def way(move: Move) -> str:
        cell = models[move.model].cells[move.cell]
        return ", ".join(filter(None, (fleet_tables.where(cell, names), fleet_tables.plan(cell))))

    yield table(
        fleet.moves,
        (
            Column("Model", lambda move: move.model, None, lambda move: models[move.model].owner, figure=False),
            Column(
                "Today",
                lambda move: fleet_tables.instances(move.today_count, move.today_instance),
                lambda move: move.today_instance,
                figure=False,
            ),
            amount("$ a month today", "today_usd_per_month", dollars, drop=2),
            Column(
                "Should run on",
                lambda move: fleet_tables.instances(move.count, move.instance),
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
        links=tuple(fleet_tables.page_of(move.model) for move in fleet.moves),
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
    names = fleet_tables.device_names(fleet)
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
        links=tuple("" if model.failure else fleet_tables.page_of(model.name) for model in listed),
        shown=tuple(at for at, model in enumerate(listed) if model.name in wanted),
        most=_MOST_ROWS,
        detail=SCREEN,
    )
    if len(listed) < len(fleet.models):
        yield Text(text=f"The page has all {len(fleet.models):,} models.")


def _row(model: FleetModel, names: Mapping[str, str]) -> tuple[str, ...]:
    cell = fleet_tables.shown_cell(model)
    verdict = "failed" if model.failure else fleet_tables.VERDICTS.get(model.device, model.device) or UNKNOWN
    where, latency, money = UNKNOWN, UNKNOWN, UNKNOWN
    if cell is not None:
        where, latency, money = (
            fleet_tables.where(cell, names),
            fleet_tables.latency(model, cell),
            fleet_tables.money(model, cell),
        )
    return model.name, verdict, where, latency, money, fleet_tables.note(model, names)


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
    failures = fleet_tables.failed(fleet)
    shown = [
        (model.name, f"{fleet_tables.FAILURES[one.kind]}: {one.message} {one.hint}".rstrip())
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
    yield from texts(*fleet_tables.consolidated(fleet))
    names = fleet_tables.device_names(fleet)
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
                        fleet_tables.instances(row[0].count, row[0].instance)
                        + (f" ({row[0].provider})" if row[0].provider else "")
                    ),
                    None,
                    lambda row: names.get(row[0].device, row[0].device),
                    figure=False,
                ),
                Column("$ a month", lambda row: dollars(row[0].usd_per_month), None, drop=1),
                Column("Share of the device", lambda row: share(row[1].share), lambda row: row[1].share),
                Column(
                    "Traffic", lambda row: fleet_tables.requests(row[1].rate), lambda row: row[1].rate, drop=3
                ),
                Column("Memory", lambda row: byte_count(row[1].memory_bytes), None, drop=2),
                Column("Latency with all that share it", lambda row: _within(models[row[1].model], row[1])),
            ),
            name="shared",
            title="Models on shared machines",
            links=tuple(fleet_tables.page_of(one.model) for _, one in rows),
            most=_MOST_ROWS,
        )
    yield from items("How they are packed", packed.notes)
    yield from items("Left out", tuple(packed.left_out.items()))


def _within(model: FleetModel, one: PackedModel) -> str:
    if one.latency_s is None:
        return UNKNOWN
    limit = model.traffic.limit_s if model.traffic is not None else None
    latency = f"{fleet_tables.percentile(model)} {seconds(one.latency_s)}".strip()
    return f"{latency}, limit {seconds(limit)}" if limit is not None else latency


def _biases(fleet: Fleet) -> Iterator[Block]:
    """Yield measured times against predicted ones."""
    names = fleet_tables.device_names(fleet)
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


# Failures that are shown at once; the others are folded up.
MOST_FAILURES = 20


def render(fleet: Fleet) -> str:
    """Return the fleet as one page; the same fleet gives the same bytes."""
    return environment().get_template("fleet.html.j2").render(build(fleet))


def build(fleet: Fleet) -> dict[str, Any]:
    """Return the template's values; strings are plain text, to be escaped there."""
    questions = {model.question for model in fleet.models}
    failures = fleet_tables.failed(fleet)
    return {
        "title": fleet_tables.title(fleet),
        "tool": fleet.tool,
        "left": fleet_tables.left(fleet),
        "tiles": _tiles(fleet),
        "sections": {section.name: section for section in document(fleet).sections},
        "failures": failures[:MOST_FAILURES],
        "more_failures": failures[MOST_FAILURES:],
        "failure_words": fleet_tables.FAILURES,
        "method": _rests(fleet),
        "questions": {key: word for key, word in fleet_tables.QUESTIONS.items() if key in questions},
        "marks": origin_note("in its page"),
        "page_of": fleet_tables.page_of,
        # No chart: nothing is compiled on this page.
        "compiles": False,
        "data": payload(fleet),
    }


def _tiles(fleet: Fleet) -> tuple[AnswerFigure, ...]:
    failures = len(fleet_tables.failed(fleet))
    requested = fleet_tables.requested(fleet)
    gpus = sum(device.kind == "gpu" for device in requested)
    others = len(fleet.devices) - len(requested)
    listed = f", and {plural(others, 'CPU')} of the price list" if others else ""

    answered = f"{len(fleet.models) - failures:,} answered, {failures:,} failed"
    there = f"{plural(gpus, 'GPU')}, {plural(len(requested) - gpus, 'CPU')}{listed}"
    tiles = [
        AnswerFigure("models", "Models", f"{len(fleet.models):,}", answered, bad=bool(failures)),
        AnswerFigure("devices", "Devices", f"{len(requested):,}", there),
    ]
    if fleet.moves or any(model.today for model in fleet.models):
        certain = sum(move.certain for move in fleet.moves)
        tiles.append(
            AnswerFigure("moves", "Should move", f"{len(fleet.moves):,}", f"{certain:,} of them certain")
        )
    if (packed := fleet.consolidation) is not None:
        apart = f"{dollars(packed.apart_usd_per_month)} with instances of its own for each"
        tiles.append(
            AnswerFigure("sharing", "Sharing machines", f"{dollars(packed.usd_per_month)} a month", apart)
        )
    return tuple(tiles)


def _rests(fleet: Fleet) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """Return the basis of the figures."""
    environment = fleet.environment
    devices = ", ".join(f"{device.name} ({device.slug})" for device in fleet_tables.requested(fleet))
    question = (
        ("Devices", devices),
        ("Prices", figure_text.KINDS[fleet.pricing]),
    )
    place = [
        ("Where", environment.where),
        ("Date", environment.date),
        ("Kept from before", first_few(environment.kept, 5) if environment.kept else ""),
        *((name, str(value)) for name, value in environment.facts.items()),
    ]
    versions = [(fleet.tool.name, fleet.tool.version), *environment.versions.items()]
    sections = (
        ("The question", question),
        ("Where and when", tuple((name, value) for name, value in place if value)),
        ("Versions", tuple((name, value) for name, value in versions)),
    )
    return tuple(section for section in sections if section[1])


# Fields of a cell as they are: figures, and words.
_FIGURES = (
    *("batch", "runs", "fits", "meets", "latency_s", "low_s", "high_s", "ttft_s", "tpot_s"),
    *("memory_bytes", "usd_per_million", "usd_low_per_million", "usd_high_per_million", "usd_per_month"),
    *("usd_low_per_month", "usd_high_per_month"),
    *("usd_per_hour", "energy_j", "count", "throughput_per_s"),
)
_WORDS = ("precision", "origin", "remark")


def payload(fleet: Fleet) -> dict[str, Any]:
    """Return the data of the page's script."""
    names = fleet_tables.device_names(fleet)
    kinds = {cell.device: cell.kind for model in fleet.models for cell in model.cells}
    kinds |= {device.slug: device.kind for device in fleet.devices}
    unnamed = {device.slug for device in fleet.devices if not device.named}
    return {
        "devices": [
            {"slug": slug, "name": name, "kind": kinds[slug], "named": slug not in unnamed}
            for slug, name in names.items()
        ],
        "models": _page_models(fleet),
        "cells": _cells(fleet.models, tuple(names)),
        "per": fleet_tables.PER,
        "per_short": fleet_tables.PER_SHORT,
        "verdicts": fleet_tables.VERDICTS,
        "questions": fleet_tables.QUESTIONS,
        "failures": fleet_tables.FAILURES,
        "marks": {mark.name: mark.sign for mark in MARKS.values()},
        # The scripts are the report's own and look for these.
        "operators": {},
        "modules": {},
        "groups": [],
    }


def _page_models(fleet: Fleet) -> dict[str, Any]:
    models = fleet.models
    saved = {move.model: move.saved_usd_per_month for move in fleet.moves}
    failures = [model.failure for model in models]
    return {
        "name": [model.name for model in models],
        "reference": coded(model.reference for model in models),
        "question": coded(model.question for model in models),
        "owner": coded(model.owner for model in models),
        "tags": [list(model.tags) for model in models],
        "verdict": coded(model.device for model in models),
        "sentence": coded(model.sentence for model in models),
        "errors": _column(model.errors for model in models),
        "warnings": _column(model.warnings for model in models),
        "parameters": _column(model.parameters for model in models),
        "size": [len(model.cells) for model in models],
        "best": _column(model.best for model in models),
        "cheapest": _column(model.cheapest for model in models),
        "saved": _column(compact(saved.get(model.name)) for model in models),
        "percentile": coded(fleet_tables.percentile(model) for model in models),
        "traffic": coded(fleet_tables.traffic(model) for model in models),
        "today": coded(
            fleet_tables.instances(model.today.count, model.today.instance) if model.today else ""
            for model in models
        ),
        "options": coded(
            " ".join(f"--{name} {value}" for name, values in model.options.items() for value in values)
            for model in models
        ),
        "notes": coded("; ".join(model.notes) for model in models),
        "failure": coded(failure.kind if failure else "" for failure in failures),
        "message": coded(failure.message if failure else "" for failure in failures),
        "hint": coded(failure.hint if failure else "" for failure in failures),
    }


def _cells(models: Sequence[FleetModel], slugs: Sequence[str]) -> dict[str, Any]:
    """Return all cells in a row, model after model."""
    places = {slug: at for at, slug in enumerate(slugs)}
    cells = [cell for model in models for cell in model.cells]
    return {
        "device": _column(places[cell.device] for cell in cells),
        **{name: _column(compact(getattr(cell, name)) for cell in cells) for name in _FIGURES},
        **{name: _texts(getattr(cell, name) for cell in cells) for name in _WORDS},
        "plan": _texts(fleet_tables.plan(cell) for cell in cells),
        "machine": _texts(fleet_tables.machine(cell) for cell in cells),
    }


def _column(values: Iterable[Any]) -> Any:
    """Return a list, or one value alone where all are the same."""
    every = list(values)
    # A bool equals its number: only what reads the same is.
    return {"all": every[0]} if every and all(value is every[0] for value in every) else every


def _texts(values: Iterable[str]) -> Any:
    column = coded(values)
    return {"all": column["of"][0]} if len(column["of"]) == 1 else column
