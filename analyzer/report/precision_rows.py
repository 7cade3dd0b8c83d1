"""Reporting: the same weights in every precision, a row for each precision and device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from analyzer.record.analysis import Analysis, PrecisionResult
from analyzer.report.summary.figure_words import marked
from analyzer.units import byte_count, dollars, factor, seconds, span

TITLE = "The same weights in other precisions"
LEAD = (
    "What ONNX Runtime would run: int8 is the graph that its quantize_static makes, int4 packs the weights of "
    "products in blocks of 32. The gain is over the model as it is on that device, with its 90 % interval."
)
HEAD = ("Precision", "Device", "Latency", "90 % interval", "Gain", "Memory", "$ per million")
_CANNOT = "does not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionView:
    """A precision on a device, ready to be printed.

    Attributes:
        precision: Its name.
        span: Rows of this precision from here on; 0 in those after its first.
        device: ``CPU`` or ``GPU``.
        decided: Whether the verdict is about it.
        runs: Whether it has figures at all.
        slower: Whether it takes longer than the model as it is.
        latency, interval: Host to host; the interval is of 90 %.
        origin: Of the latency.
        gain, gain_interval: Over the model as it is.
        memory, fits: What it needs, and whether the device has that.
        dollars: For a million inferences.
        reason: Why, in a sentence without its full stop.
    """

    precision: str
    span: int
    device: str
    decided: bool
    runs: bool
    slower: bool
    latency: str
    interval: str
    origin: str
    gain: str
    gain_interval: str
    memory: str
    fits: bool
    dollars: str
    reason: str


def rows(analysis: Analysis) -> tuple[PrecisionView, ...]:
    """All rows, those of one precision together; none where the record has none."""
    shown: list[PrecisionView] = []
    for _, group in groupby(analysis.precisions, key=lambda result: result.precision):
        results = tuple(group)
        shown += [_row(result, 0 if at else len(results)) for at, result in enumerate(results)]
    return tuple(shown)


def cells(row: PrecisionView) -> tuple[str, ...]:
    """What stands under ``HEAD``, as plain text."""
    gain = f"{row.gain} ({row.gain_interval})" if row.gain_interval else row.gain
    memory = row.memory if row.fits else f"{row.memory} (does not fit)"
    return (
        row.precision,
        row.device,
        marked(row.latency, row.origin) if row.runs else _CANNOT,
        row.interval,
        gain,
        memory,
        row.dollars,
    )


def _row(result: PrecisionResult, rows_of_precision: int) -> PrecisionView:
    time = result.latency
    runs = time is not None
    gains = result.speedup is not None
    return PrecisionView(
        precision=result.precision,
        span=rows_of_precision,
        device=result.device.upper(),
        decided=result.decided,
        runs=runs,
        slower=result.speedup is not None and result.speedup < 1,
        latency=seconds(result.latency_s) if runs else _CANNOT,
        interval=time.between(seconds) if time else "",
        origin=result.origin if runs else "",
        gain=factor(result.speedup) if gains else "",
        gain_interval=span(factor(result.speedup_low), factor(result.speedup_high)) if gains else "",
        memory=byte_count(result.memory_bytes) if runs else "",
        fits=result.fits,
        dollars=dollars(result.usd_per_million) if runs else "",
        reason=result.reason,
    )
