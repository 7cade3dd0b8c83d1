"""Reporting: the same weights in every precision, a row for each precision and device."""

from __future__ import annotations

from analyzer.record.analysis import Analysis, PrecisionResult
from analyzer.report.document import Table
from analyzer.report.summary.figure_words import marked
from analyzer.units import UNKNOWN, byte_count, dollars, factor, seconds, span

_LEAD = (
    "The models that ONNX Runtime would run: int8 is the graph of its quantize_static, int4 packs the weights "
    "of matrix multiplications in blocks of 32. The gain is over the model as it is on that device, with its "
    "90 % interval."
)


def tables(analysis: Analysis) -> tuple[Table, ...]:
    """Return the table of precisions; none where the record has none."""
    results = analysis.precisions
    if not results:
        return ()
    decided = (at for at, one in enumerate(results) if one.decided)
    return (
        Table(
            name="precisions",
            title="The same weights in other precisions",
            lead=_LEAD,
            head=("Precision", "Latency", "90 % interval", "Gain", "Memory", "$ per million", "Why"),
            rows=tuple(map(_row, results)),
            figures=(1, 2, 3, 4, 5),
            drop=(0, 0, 1, 0, 2, 3, 4),
            chosen=next(decided, None),
            mark="decided",
            # Why it does not run, or gains nothing.
            below=tuple(
                f"{_name(one)}: {one.reason}."
                for one in results
                if one.reason and (one.latency is None or (one.speedup is not None and one.speedup < 1))
            ),
            most=0,
        ),
    )


def _name(result: PrecisionResult) -> str:
    return f"{result.precision} on the {result.device.upper()}"


def _row(result: PrecisionResult) -> tuple[str, ...]:
    time = result.latency
    if time is None:
        return (_name(result), "does not run", "", "", "", "", result.reason)
    gain = UNKNOWN
    if result.speedup is not None:
        interval = span(factor(result.speedup_low), factor(result.speedup_high))
        gain = f"{factor(result.speedup)} ({interval})"
    return (
        _name(result),
        marked(seconds(time.value), result.origin),
        time.between(seconds),
        gain,
        byte_count(result.memory_bytes) + ("" if result.fits else " (does not fit)"),
        dollars(result.usd_per_million),
        result.reason,
    )
