"""``analyze check DIR/fleet.json``: every model of a fleet judged by its own record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.errors import RecordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analyzer.checks.settings import CheckSettings
    from analyzer.record.fleet import Fleet, FleetModel
    from analyzer.report.fleet.check import CheckedFleet, CheckedModel


def checked_fleet(fleet: Fleet, path: Path, settings: CheckSettings, formats: Iterable[str]) -> CheckedFleet:
    """Judges the models of a fleet by their records beside ``path``, its file.

    Raises:
        UsageError: A format is about one model.
        RecordError: A model's record is missing or cannot be read.
    """
    from analyzer.report.fleet.check import FORMATS, CheckedFleet

    for name in formats:
        if name not in FORMATS:
            raise UsageError(
                f"--format {name} is about one model, and {path} is a fleet",
                hint=f"use {', '.join(FORMATS)}, or check the record of one of its models",
            )
    records = {model.name: _record_of(model, path.parent) for model in fleet.models if model.failure is None}
    return CheckedFleet(
        name=path.name,
        tool=fleet.tool,
        models=[_checked(model, records.get(model.name), settings, fleet) for model in fleet.models],
        left=fleet.left,
    )


def _record_of(model: FleetModel, folder: Path) -> Path:
    """The file of a model's record; that all are there is said before any is judged."""
    file = folder / f"{model.name}.json"
    # The name is a stranger's text where the fleet is somebody else's: it stays in the folder.
    if file.parent != folder or Path(model.name).name != model.name:
        raise RecordError(f"{model.name!r} is no name of a fleet's model", hint="run `analyze fleet` anew")
    if not file.is_file():
        raise RecordError(
            f"there is no record {file}, which the fleet names",
            hint="check the fleet in the folder that `analyze fleet` wrote, or run it anew",
        )
    return file


def _checked(model: FleetModel, record: Path | None, settings: CheckSettings, fleet: Fleet) -> CheckedModel:
    from analyzer.checks import judge, judge_failure
    from analyzer.record import load_report
    from analyzer.report.fleet.check import checked, checked_failure

    if record is None:
        assert model.failure is not None
        judgement = judge_failure(
            model.failure.message.rstrip(".") or model.failure.kind,
            model.failure.hint.rstrip(".") or "see its log, and try again with `analyze fleet --retry-failed`",
            settings,
        )
        return checked_failure(model, judgement, fail_on=settings.fail_on, tool=fleet.tool)
    analysis = load_report(record)
    judgement = judge(analysis, settings)
    analysis = replace(analysis, findings=judgement.findings, ignored=judgement.ignored)
    return checked(model.name, analysis, fail_on=settings.fail_on)
