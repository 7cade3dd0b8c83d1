"""The inference verdict of a model beside its training step's: from the latest record that is comparable."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from analyzer.errors import RecordError
from analyzer.record import load_report
from analyzer.record.analysis import Analysis
from analyzer.record.invocation import Invocation, amended, command_line
from analyzer.record.training_step import InferenceSummary

# A record names its model in its first lines: the files of other models are told without reading them whole.
_HEAD_BYTES = 4096


def with_inference(analysis: Analysis, folders: Iterable[Path], reference: str) -> Analysis:
    """Return the analysis of a step with what the latest comparable record of inference says.

    Records are searched in ``folders``; ``reference`` is the model as the user named it, for the command that
    is shown where there is none.

    Comparable is a record of the same model at the same batch, precision and devices. A record of a step hands
    on what it holds of inference, since both are written under the same name.
    """
    if analysis.training is None:
        return analysis
    summaries = [summary for folder in folders for summary in _summaries(folder, analysis)]
    gpu, model = analysis.devices.gpu, analysis.model
    slug = gpu.slug if gpu is not None else None
    # Source and name were compared before; the digest would differ, since a step's graph has gradients too.
    alike = (model.batch, model.precision, analysis.devices.cpu.name, slug, model.parameters)
    comparable = [
        one for one in summaries if (one.batch, one.precision, one.cpu, one.gpu, one.parameters) == alike
    ]
    if comparable:
        # Dates are ISO 8601 in UTC, whose order as texts is that in time.
        training = replace(analysis.training, inference=max(comparable, key=lambda summary: summary.date))
        return replace(analysis, training=training)
    others = sorted(
        {summary.batch for summary in summaries if summary.batch is not None} - {analysis.model.batch}
    )
    # The step's own question about inference, at the batch of the step. It is run in the folder where the step
    # was; a price list is named from elsewhere and changes no verdict's being comparable.
    step = analysis.invocation or Invocation(command="run", model=reference)
    batch = step.options.get("batch", ())
    if not batch and analysis.model.batch is not None:
        batch = (str(analysis.model.batch),)
    inference = amended(step, {"batch": batch} if batch else {}, without=("training", "dataset-size", "prices"))
    command = command_line(replace(inference, model=reference))
    note = f"For the inference verdict beside this one, run `{command}` first."
    if others:
        note += f" The records at hand are of batch {', '.join(map(str, others))}."
    return replace(analysis, training=replace(analysis.training, inference_note=note))


def _summaries(folder: Path, analysis: Analysis) -> Iterator[InferenceSummary]:
    """Yield a folder's records of the same model's inference; other files are passed over."""
    if not folder.is_dir():
        return
    for path in sorted(folder.glob("*.json")):
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except OSError:
            continue
        # Escaped as `to_json` writes it.
        if json.dumps(analysis.model.source, ensure_ascii=False).encode() not in head:
            continue
        try:
            record = load_report(path)
        except RecordError:
            continue
        if (record.model.source, record.model.name) != (analysis.model.source, analysis.model.name):
            continue
        step = record.training
        gpu, plans = record.devices.gpu, record.plans
        summary = (
            InferenceSummary(
                file=path.name,
                date=record.environment.date or "",
                batch=record.model.batch,
                precision=record.model.precision,
                cpu=record.devices.cpu.name,
                gpu=gpu.slug if gpu is not None else None,
                parameters=record.model.parameters,
                verdict=record.verdict,
                plans=tuple(replace(one, transfers=replace(one.transfers, items=())) for one in plans),
            )
            if step is None
            else step.inference
        )
        if summary is not None:
            yield summary
