"""Rows of models -> the fleet: columns, merged measurements, what follows from all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from analyzer.devices import catalogue
from analyzer.devices.detection import Machine
from analyzer.devices.instances import Instance
from analyzer.errors import DeviceError
from analyzer.fleet.bias import MeasuredPair, biases_of, corrected
from analyzer.fleet.consolidation import consolidation_of
from analyzer.fleet.entry import Entry
from analyzer.fleet.moves import moves_of
from analyzer.fleet.row import cheapest_of, judged_anew
from analyzer.fleet.sentences import sentences_of
from analyzer.options import Pricing
from analyzer.record.analysis import TOOL
from analyzer.record.fleet import DeviceBias, Fleet, FleetDevice, FleetEnvironment, FleetModel
from analyzer.record.outcome import RankedWay


def fleet_of(
    rows: Sequence[tuple[Entry, FleetModel]],
    measured: Mapping[str, Sequence[FleetModel]],
    *,
    left: int,
    pricing: Pricing,
    offers: Sequence[Instance],
    machine: Machine,
    environment: FleetEnvironment,
) -> Fleet:
    """Return the fleet of the finished models, ``rows``, and of their ``measured`` ones, by name.

    Each of the latter has one device measured, or the failure that prevented it. ``left`` models are not done.
    All dollars are by ``pricing``, in which ``offers`` can be rented; ``machine`` has the CPU called this
    one's.

    Raises:
        UsageError: Where a model runs today is not among the offers.
    """
    predicted = [
        _told(entry, row)
        for entry, row in sorted(rows, key=lambda pair: (pair[0].name.casefold(), pair[0].name))
    ]
    biases = biases_of(pair for row in predicted for pair in _pairs(row, measured.get(row.name, ())))
    by_device = {bias.device: bias for bias in biases}
    models = tuple(_with_measured(row, measured.get(row.name, ()), by_device) for row in predicted)
    devices = _devices(models, machine)
    moves = moves_of(models, offers)
    consolidation = consolidation_of(models, offers)
    return Fleet(
        models=models,
        devices=devices,
        sentences=sentences_of(models, devices, moves=moves, consolidation=consolidation, biases=biases),
        moves=moves,
        consolidation=consolidation,
        biases=biases,
        left=left,
        pricing=pricing,
        environment=environment,
        tool=TOOL,
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


def _measured_cells(measured: Iterable[FleetModel]) -> dict[tuple[str, int | None], RankedWay]:
    """Cells of devices that stood there, by device and batch."""
    return {
        (cell.device, cell.batch): cell for row in measured for cell in row.cells if cell.origin != "predicted"
    }


def _pairs(row: FleetModel, measured: Iterable[FleetModel]) -> Iterator[MeasuredPair]:
    found = _measured_cells(measured)
    for cell in row.cells:
        other = found.get((cell.device, cell.batch))
        if other is not None:
            yield MeasuredPair(model=row.name, predicted=cell, measured=other)


def _with_measured(
    row: FleetModel, measured: Sequence[FleetModel], biases: Mapping[str, DeviceBias]
) -> FleetModel:
    """A row with measured cells in place of predicted ones, and the others corrected by what was measured."""
    found = _measured_cells(measured)
    cells = tuple(
        found.get((cell.device, cell.batch))
        or (judged_anew(row, corrected(cell, biases[cell.device])) if cell.device in biases else cell)
        for cell in row.cells
    )
    notes = tuple(f"Not measured: {other.failure.message}" for other in measured if other.failure is not None)
    return replace(row, cells=cells, cheapest=cheapest_of(cells), notes=(*row.notes, *notes))


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
