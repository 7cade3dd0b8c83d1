"""Rows of models -> the fleet: columns, merged measurements, what follows from all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from analyzer import __version__
from analyzer.devices import catalogue
from analyzer.devices.detection import Machine
from analyzer.errors import DeviceError
from analyzer.fleet.entry import Entry
from analyzer.fleet.row import cheapest_of
from analyzer.option_table import Pricing
from analyzer.record.analysis import Tool
from analyzer.record.fleet import Fleet, FleetCell, FleetDevice, FleetEnvironment, FleetModel


def fleet_of(
    rows: Sequence[tuple[Entry, FleetModel]],
    measured: Mapping[str, Sequence[FleetModel]],
    *,
    left: int,
    pricing: Pricing,
    machine: Machine,
    environment: FleetEnvironment,
) -> Fleet:
    """The fleet of all rows.

    Args:
        rows: Finished models and what the manifest says of them.
        measured: By model's name, its rows with one device measured each.
        left: How many models are not done yet.
        pricing: The way of paying that all dollars are by.
        machine: Whose CPU "this machine's" is.
        environment: Where and when.
    """
    models = tuple(
        _with_measured(_told(entry, row), measured.get(entry.name, ()))
        for entry, row in sorted(rows, key=lambda pair: (pair[0].name.casefold(), pair[0].name))
    )
    return Fleet(
        models=models,
        devices=_devices(models, machine),
        left=left,
        pricing=pricing,
        environment=environment,
        tool=Tool(name="analyze", version=__version__),
    )


def _told(entry: Entry, row: FleetModel) -> FleetModel:
    """A row with what the manifest says of its model."""
    return replace(
        row,
        name=entry.name,
        reference=entry.reference,
        owner=entry.owner,
        tags=entry.tags,
        traffic=entry.traffic,
        today=entry.today,
    )


def _with_measured(row: FleetModel, measured: Iterable[FleetModel]) -> FleetModel:
    """A row with measured cells in place of predicted ones of the same device and batch."""
    found: dict[tuple[str, int | None], FleetCell] = {}
    for other in measured:
        found |= {(cell.device, cell.batch): cell for cell in other.cells if cell.origin != "predicted"}
    if not found:
        return row
    cells = tuple(found.get((cell.device, cell.batch), cell) for cell in row.cells)
    return replace(row, cells=cells, cheapest=cheapest_of(cells))


def _devices(models: Iterable[FleetModel], machine: Machine) -> tuple[FleetDevice, ...]:
    """The columns: GPUs in the order in which models have them, then CPUs, those of the price list last."""
    found: dict[str, FleetDevice] = {}
    for model in models:
        for cell in model.cells:
            known = found.get(cell.device)
            if known is None:
                name = _name(cell.device, machine)
                found[cell.device] = FleetDevice(slug=cell.device, name=name, kind=cell.kind, named=cell.named)
            elif cell.named and not known.named:
                found[cell.device] = replace(known, named=True)
    return tuple(sorted(found.values(), key=lambda device: (device.kind == "cpu", not device.named)))


def _name(slug: str, machine: Machine) -> str:
    for device in (machine.cpu, machine.gpu):
        if device is not None and device.slug == slug:
            return device.name
    try:
        return catalogue.device(slug).name
    except DeviceError:  # one of the user's own files
        return slug
