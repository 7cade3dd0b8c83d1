"""A model of inference whose export is for one batch: exported again at each other one that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from analyzer.errors import AnalyzerError
from analyzer.loading.load import load
from analyzer.loading.loaded import DEFAULT_OPSET, Loaded
from analyzer.options import Options
from analyzer.progress import Progress
from analyzer.text import listed


@dataclass(frozen=True, kw_only=True)
class ExportedBatches:
    """The model at batches that its own export is not right for.

    Attributes:
        at: By batch; what could be exported there.
        why_not: Of the others, what forbids it, in a sentence.
    """

    at: Mapping[int, Loaded] = field(default_factory=lambda: MappingProxyType({}))
    why_not: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))


def exported_batches(loaded: Loaded, options: Options, progress: Progress) -> ExportedBatches:
    """The model at each batch that was asked for and is not in its export; a step is traced instead."""
    others = [batch for batch in options.batches if batch != loaded.batch and not loaded.supports(batch)]
    if loaded.step is not None or not others:
        return ExportedBatches()
    at: dict[int, Loaded] = {}
    why_not: dict[int, str] = {}
    for batch in others:
        progress(f"exporting at batch {batch}", None)
        try:
            other = _exported(loaded, batch, options)
        except AnalyzerError as error:
            why_not[batch] = error.message
        else:
            if other is None or not other.supports(batch):
                why_not[batch] = "the file holds the model at one batch alone"
            else:
                at[batch] = replace(other, batch=batch, state=options.state)
    return ExportedBatches(at=at, why_not=why_not)


def _exported(loaded: Loaded, batch: int, options: Options) -> Loaded | None:
    """The model exported anew; None where its code is not there."""
    if loaded.exporter in ("onnx", "pt2"):
        return None
    opset = options.opset or DEFAULT_OPSET
    if loaded.reference is not None:
        return load(loaded.reference, batch=batch, specs=options.inputs, opset=opset, use_cache=options.cache)
    from analyzer.loading.from_object import live_at

    return live_at(loaded, batch, opset)


def missing_note(
    loaded: Loaded, options: Options, analysed: Iterable[int], why_not: Mapping[int, str]
) -> tuple[str, ...]:
    """Which of the batches that were asked for are not in the report, and why; empty where all are."""
    known = {*analysed, loaded.batch}
    by_reason: dict[str, list[int]] = {}
    for batch in options.batches:
        if batch not in known:
            reason = why_not.get(batch, "the model's code or its shapes forbid it")
            by_reason.setdefault(reason, []).append(batch)
    return tuple(
        f"Not analysed at batch {listed([str(batch) for batch in batches])}: {reason.rstrip('.')}."
        for reason, batches in by_reason.items()
    )
