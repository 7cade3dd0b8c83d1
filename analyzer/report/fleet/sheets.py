"""Reporting: the tables of a fleet: what should move, every model in a row, what shares a machine, biases."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.record.fleet import Fleet, FleetModel
from analyzer.report.answer import OptionTable
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


def moves(fleet: Fleet) -> OptionTable | None:
    """What would cost less elsewhere, the most saved first; None where nothing should move."""
    if not fleet.moves:
        return None
    names = words.device_names(fleet)
    models = {model.name: model for model in fleet.models}
    cells = [models[move.model].cells[move.cell] for move in fleet.moves]
    return OptionTable(
        name="moves",
        title="Models that would cost less elsewhere",
        head=(
            "Model",
            "Today",
            "$ a month today",
            "Should run on",
            "$ a month there",
            "Saved a month",
            "Certain",
        ),
        rows=tuple(
            (
                move.model,
                words.instances(move.today_count, move.today_instance),
                dollars(move.today_usd_per_month),
                words.instances(move.count, move.instance),
                dollars(move.usd_per_month),
                dollars(move.saved_usd_per_month),
                CERTAIN[move.certain],
            )
            for move in fleet.moves
        ),
        beside=tuple(
            (
                models[move.model].owner,
                "",
                "",
                ", ".join(filter(None, (words.where(cell, names), words.plan(cell)))),
                *("", "", ""),
            )
            for move, cell in zip(fleet.moves, cells, strict=True)
        ),
        sort=tuple(
            (
                move.model,
                move.today_instance,
                move.today_usd_per_month,
                move.instance,
                move.usd_per_month,
                move.saved_usd_per_month,
                CERTAIN[move.certain],
            )
            for move in fleet.moves
        ),
        figures=(2, 4, 5),
        narrow=(0, 1, 3, 5),
        links=tuple(words.page_of(move.model) for move in fleet.moves),
        lead=(
            "Each keeps its limits there. "
            "A move is certain where even the dearer end of the 90 % interval saves."
        ),
    )


def models(fleet: Fleet) -> OptionTable:
    """A row for each model: its verdict, its cheapest device, its times and dollars there."""
    names = words.device_names(fleet)
    return OptionTable(
        name="models",
        title="Every model",
        head=("Model", "Verdict", "Cheapest device", "Latency", "Dollars", "Note"),
        rows=tuple(_row(model, names) for model in fleet.models),
        figures=(3, 4),
        narrow=(0, 1, 2, 3, 4, 5),
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


def biases(fleet: Fleet) -> OptionTable | None:
    """What was measured beside what was predicted; None where nothing was."""
    if not fleet.biases:
        return None
    names = words.device_names(fleet)
    return OptionTable(
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
        narrow=(0, 1, 2, 3),
        lead=(
            "Where models were measured on a device, this is how their times compare with what was predicted: "
            "above 1 they took longer."
        ),
    )
