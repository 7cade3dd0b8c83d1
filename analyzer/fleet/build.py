"""Rows of models -> the fleet: columns, merged measurements, and what these say about predictions.

The logarithm of measured over predicted time is taken to be c + o: c is the device's, common to all models on
it (what the catalogue has wrong of the card, its clocks, its driver), o the model's own. Both are normal
around 0. A prediction's own 90 % interval says how far both together may be: their deviation is log(high /
low) / (2 * 1.645). Half of that variance is taken to be common. Nothing that is known before a card is
measured says more: were all of it common, one model would correct all others, and were none of it, no number
of models would.

n measured models with errors e then leave c normal around sum(e) / w / p with variance 1 / p, where w is the
variance of o and p = 1 / var(c) + n / w (conjugate priors). What the models show is never taken to be less: w
is at least the sample variance of e. A prediction that is left errs by c + o, of variance 1 / p + its own w.

In simulations these intervals hold 92 % of what is measured next where half is common, all where all is, and
86 % (3 measured models) to 89 % (30) where nothing is.

Fewer than ``ENOUGH`` models show no spread that could be relied on: they widen intervals and narrow none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.devices import catalogue
from analyzer.devices.detection import Machine
from analyzer.devices.device import Instance
from analyzer.errors import DeviceError
from analyzer.fleet.consolidation import consolidation_of, moves_of
from analyzer.fleet.model_list import Entry
from analyzer.fleet.work import cheapest_of, judged_anew
from analyzer.fleet.writing import sentences_of
from analyzer.options import Pricing
from analyzer.record.analysis import TOOL
from analyzer.record.fleet import DeviceBias, Fleet, FleetDevice, FleetEnvironment, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.text import plural
from analyzer.units import digits

# Standard deviations from the middle to either end of a 90 % interval of a normal distribution.
_TO_90 = 1.6448536269514722
_COMMON = 0.5
ENOUGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPair:
    """A model's cell as predicted, and as measured on the same device at the same batch."""

    model: str
    predicted: RankedWay
    measured: RankedWay


def biases_of(pairs: Iterable[MeasuredPair]) -> tuple[DeviceBias, ...]:
    """Return the bias of each device on which something was measured, by slug.

    Of a model at several batches the middle of its errors counts, as one: they err together.
    """
    by_device: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        before, now = pair.predicted, pair.measured
        if before.latency_s and now.latency_s:
            error = math.log(now.latency_s / before.latency_s)
            by_device[before.device][pair.model].append((error, _deviation(before)))
    return tuple(_bias(device, by_device[device]) for device in sorted(by_device))


def _bias(device: str, by_model: Mapping[str, list[tuple[float, float]]]) -> DeviceBias:
    errors = [math.fsum(error for error, _ in pairs) / len(pairs) for pairs in by_model.values()]
    variances = [math.fsum(spread**2 for _, spread in pairs) / len(pairs) for pairs in by_model.values()]
    count = len(errors)
    mean = math.fsum(errors) / count
    shown = math.fsum((error - mean) ** 2 for error in errors) / (count - 1) if count > 1 else 0.0
    variance = math.fsum(variances) / count
    common, own = variance * _COMMON, max(variance * (1 - _COMMON), shown)
    if common <= 0 or own <= 0:  # predictions without an interval: nothing is known of c but what is seen
        middle, left = mean, own / count
    else:
        precision = 1 / common + count / own
        middle, left = math.fsum(errors) / own / precision, 1 / precision
    reach = _TO_90 * math.sqrt(left)
    return DeviceBias(
        device=device,
        models=count,
        ratio=math.exp(middle),
        low=math.exp(middle - reach),
        high=math.exp(middle + reach),
        spread=math.sqrt(shown),
    )


def corrected(cell: RankedWay, bias: DeviceBias) -> RankedWay:
    """Return a predicted cell with what was measured of others on its device; any other cell as it is.

    Times, and the dollars and joules that follow from them, are multiplied by the ratio; their interval is
    that of c and o together. Whether a limit is kept then is for the caller to say.
    """
    time = cell.latency
    served = cell.count is not None  # its latency is a queue's, which does not go with the time of a run
    if cell.origin != "predicted" or cell.device != bias.device or not time or not time.value or served:
        return cell
    common = math.log(bias.high / bias.low) / (2 * _TO_90)
    own = max(_deviation(cell) ** 2 * (1 - _COMMON), bias.spread**2)
    reach = math.exp(_TO_90 * math.sqrt(common**2 + own))
    ratio = bias.ratio
    low, high = ratio / reach, ratio * reach
    if bias.models < ENOUGH:
        # The middle stays: two models may err alike by chance.
        low = min(low, (time.low or time.value) / time.value)
        high = max(high, time.high / time.value)
        ratio = 1.0
    note = f"times by {digits(bias.ratio)}, as {plural(bias.models, 'measured model')} took on it"
    if bias.models < ENOUGH:
        note = f"interval widened by {plural(bias.models, 'measured model')} on it"
    return replace(
        cell,
        **replace(time, value=time.value * ratio, low=time.value * low, high=time.value * high).keys(
            "latency_s"
        ),
        ttft_s=_times(cell.ttft_s, ratio),
        tpot_s=_times(cell.tpot_s, ratio),
        throughput_per_s=_times(cell.throughput_per_s, 1 / ratio),
        usd_per_million=_times(cell.usd_per_million, ratio),
        usd_low_per_million=_times(cell.usd_per_million, low),
        usd_high_per_million=_times(cell.usd_per_million, high),
        energy_j=_times(cell.energy_j, ratio),
        note="; ".join(filter(None, (cell.note, note))),
    )


def _times(value: float | None, ratio: float) -> float | None:
    return None if value is None else value * ratio


def _deviation(cell: RankedWay) -> float:
    """Return the standard deviation of the logarithm that a cell's 90 % interval has."""
    time = cell.latency
    return math.log(time.high / time.low) / (2 * _TO_90) if time and time.low else 0.0


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
        _reported(entry, row)
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


def _reported(entry: Entry, row: FleetModel) -> FleetModel:
    """Return a row with what the manifest says of its model."""
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
    """Return cells of devices that stood there, by device and batch."""
    return {
        (cell.device, cell.batch): cell for row in measured for cell in row.cells if cell.origin != "predicted"
    }


def _pairs(row: FleetModel, measured: Iterable[FleetModel]) -> Iterator[MeasuredPair]:
    result = _measured_cells(measured)
    for cell in row.cells:
        other = result.get((cell.device, cell.batch))
        if other is not None:
            yield MeasuredPair(model=row.name, predicted=cell, measured=other)


def _with_measured(
    row: FleetModel, measured: Sequence[FleetModel], biases: Mapping[str, DeviceBias]
) -> FleetModel:
    """Return a row with measured cells in place of predicted ones, and the others corrected by them."""
    result = _measured_cells(measured)
    cells = tuple(
        result.get((cell.device, cell.batch))
        or (judged_anew(row, corrected(cell, biases[cell.device])) if cell.device in biases else cell)
        for cell in row.cells
    )
    notes = tuple(f"Not measured: {other.failure.message}" for other in measured if other.failure is not None)
    return replace(row, cells=cells, cheapest=cheapest_of(cells), notes=(*row.notes, *notes))


def _devices(models: Iterable[FleetModel], machine: Machine) -> tuple[FleetDevice, ...]:
    """Return columns: GPUs in the order in that models have them, then CPUs, those of the price list last."""
    result: dict[str, FleetDevice] = {}
    for model in models:
        for cell in model.cells:
            known = result.get(cell.device)
            if known is None:
                name = _name(cell.device, machine)
                result[cell.device] = FleetDevice(slug=cell.device, name=name, kind=cell.kind, named=cell.named)
            elif cell.named and not known.named:
                result[cell.device] = replace(known, named=True)
    return tuple(sorted(result.values(), key=lambda device: (device.kind == "cpu", not device.named)))


def _name(slug: str, machine: Machine) -> str:
    for device in (machine.cpu, machine.gpu):
        if device is not None and device.slug == slug:
            return device.name
    try:
        return catalogue.device(slug).name
    except DeviceError:  # one of the user's own files
        return slug
