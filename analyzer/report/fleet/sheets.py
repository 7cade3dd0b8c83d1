"""Reporting: the tables of a fleet: what should move, every model in a row, what shares a machine, biases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analyzer.record.fleet import Fleet, FleetCell, FleetModel, Move
from analyzer.report.answer import TextColumn, TextTable, text_table
from analyzer.report.fleet import words
from analyzer.text import plural
from analyzer.units import UNKNOWN, byte_count, digits, dollars, seconds, share, span

CERTAIN = {True: "yes", False: "no: within the 90 % interval"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedModel:
    """A model on a shared machine as text; ``part`` is its share of the device, 0 to 1."""

    name: str
    link: str
    part: float
    share: str
    rate: str
    memory: str
    latency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMachine:
    """Machines that are alike, and who shares each of them."""

    title: str
    device: str
    dollars: str
    models: tuple[SharedModel, ...]


def moves(fleet: Fleet) -> TextTable | None:
    """What would cost less elsewhere, the most saved first; None where nothing should move."""
    if not fleet.moves:
        return None
    names = words.device_names(fleet)
    models = {model.name: model for model in fleet.models}
    return text_table(
        fleet.moves,
        (
            TextColumn(
                "Model", lambda move: move.model, None, lambda move: models[move.model].owner, figure=False
            ),
            TextColumn(
                "Today",
                lambda move: words.instances(move.today_count, move.today_instance),
                lambda move: move.today_instance,
                figure=False,
            ),
            _dollars("$ a month today", lambda move: move.today_usd_per_month, narrow=False),
            TextColumn(
                "Should run on",
                lambda move: words.instances(move.count, move.instance),
                lambda move: move.instance,
                lambda move: _way(models[move.model].cells[move.cell], names),
                figure=False,
            ),
            _dollars("$ a month there", lambda move: move.usd_per_month, narrow=False),
            _dollars("Saved a month", lambda move: move.saved_usd_per_month),
            TextColumn("Certain", lambda move: CERTAIN[move.certain], narrow=False, figure=False),
        ),
        name="moves",
        title="Models that would cost less elsewhere",
        links=tuple(words.page_of(move.model) for move in fleet.moves),
        lead=(
            "Each keeps its limits there. "
            "A move is certain where even the dearer end of the 90 % interval saves."
        ),
    )


def _dollars(head: str, value: Callable[[Move], float], *, narrow: bool = True) -> TextColumn:
    return TextColumn(head, lambda move: dollars(value(move)), value, narrow=narrow)


def _way(cell: FleetCell, names: dict[str, str]) -> str:
    return ", ".join(filter(None, (words.where(cell, names), words.plan(cell))))


def models(fleet: Fleet) -> TextTable:
    """A row for each model: its verdict, its cheapest device, its times and dollars there."""
    names = words.device_names(fleet)
    return TextTable(
        name="models",
        title="Every model",
        head=("Model", "Verdict", "Cheapest device", "Latency", "Dollars", "Note"),
        rows=tuple(_row(model, names) for model in fleet.models),
        figures=(3, 4),
        links=tuple("" if model.failure else words.page_of(model.name) for model in fleet.models),
    )


def _row(model: FleetModel, names: dict[str, str]) -> tuple[str, ...]:
    cell = words.shown_cell(model)
    verdict = "failed" if model.failure else words.VERDICTS.get(model.device, model.device) or UNKNOWN
    where, latency, money = UNKNOWN, UNKNOWN, UNKNOWN
    if cell is not None:
        where, latency, money = words.where(cell, names), words.latency(model, cell), words.money(model, cell)
    return model.name, verdict, where, latency, money, words.note(model, names)


def shared(fleet: Fleet) -> tuple[SharedMachine, ...]:
    """Who shares which machines."""
    if fleet.consolidation is None:
        return ()
    names = words.device_names(fleet)
    models = {model.name: model for model in fleet.models}
    return tuple(
        SharedMachine(
            title=words.instances(machine.count, machine.instance)
            + (f" ({machine.provider})" if machine.provider else ""),
            device=names.get(machine.device, machine.device),
            dollars=f"{dollars(machine.usd_per_month)} a month",
            models=tuple(
                SharedModel(
                    name=one.model,
                    link=words.page_of(one.model),
                    part=min(float(one.share), 1.0),
                    share=share(one.share),
                    rate=words.requests(one.rate),
                    memory=byte_count(one.memory_bytes),
                    latency=_within(models[one.model], one.latency_s),
                )
                for one in machine.models
            ),
        )
        for machine in fleet.consolidation.instances
    )


def _within(model: FleetModel, latency_s: float | None) -> str:
    if latency_s is None:
        return UNKNOWN
    limit = model.traffic.limit_s if model.traffic is not None else None
    said = f"{words.percentile(model)} {seconds(latency_s)}".strip()
    return f"{said}, limit {seconds(limit)}" if limit is not None else said


def biases(fleet: Fleet) -> TextTable | None:
    """What was measured beside what was predicted; None where nothing was."""
    if not fleet.biases:
        return None
    names = words.device_names(fleet)
    return TextTable(
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
            "Where models were measured on a device, this is how their times compare with what was predicted: "
            "above 1 they took longer."
        ),
    )
