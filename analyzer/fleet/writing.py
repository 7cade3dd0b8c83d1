"""The fleet's answer in sentences, and its own files: JSON, CSV, Markdown, page, Parquet."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from analyzer.decision.reasons import short_name
from analyzer.errors import OutputError
from analyzer.record.encoding import FLEET_FILE
from analyzer.record.fleet import Consolidation, DeviceBias, Fleet, FleetDevice, FleetModel, Move
from analyzer.record.formats import HTML_MARK, Format, marked_by
from analyzer.record.output_files import Target, check_writable, write_all
from analyzer.report import fleet_tables
from analyzer.text import listed, plural
from analyzer.units import dollars, factor

# Devices that are named in a sentence, those of the most models.
_NAMED = 4
# An initialism that begins with one of these letters begins with a vowel when it is read: an L4, an RTX.
_SPOKEN_WITH_A_VOWEL = frozenset("AEFHILMNORSX")


def sentences_of(
    models: Sequence[FleetModel],
    devices: Sequence[FleetDevice],
    *,
    moves: Sequence[Move] = (),
    consolidation: Consolidation | None = None,
    biases: Sequence[DeviceBias] = (),
) -> tuple[str, ...]:
    """Return sentences on moves, shared machines, cheapest places and failures."""
    by_name = {model.name: model for model in models}
    return (
        *_moving(by_name, moves),
        *_sharing(consolidation),
        *_cheapest(models, devices),
        *_biased(devices, biases),
        *_without_answer(models),
    )


def _moving(by_name: dict[str, FleetModel], moves: Sequence[Move]) -> Iterator[str]:
    idle = [
        move
        for move in moves
        if move.today_kind == "gpu" and by_name[move.model].cells[move.cell].kind == "cpu"
    ]
    others = [move for move in moves if move not in idle]
    for group, one, many in (
        (idle, "pays for a GPU it does not need", "pay for a GPU they do not need"),
        (others, "would cost less elsewhere", "would cost less elsewhere"),
    ):
        certain = [move for move in group if move.certain]
        unsure = [move for move in group if not move.certain]
        if certain:
            verb = one if len(certain) == 1 else many
            yield f"{len(certain):,} of {plural(len(by_name), 'model')} {verb}: {_saved(certain)}."
        if unsure:
            more = f"{len(unsure):,} more" if certain else f"{len(unsure):,} of {plural(len(by_name), 'model')}"
            verb = many.replace("would", "").strip()
            yield f"{more} may {verb}, {_saved(unsure)}: within the predictions' 90 % intervals."


def _saved(moves: Sequence[Move]) -> str:
    return f"{dollars(math.fsum(move.saved_usd_per_month for move in moves))} a month"


def _sharing(consolidation: Consolidation | None) -> Iterator[str]:
    if consolidation is None:
        return
    names = {one.model for machine in consolidation.instances for one in machine.models}
    if names:
        machines = sum(machine.count for machine in consolidation.instances)
        today = consolidation.today_usd_per_month
        apart = f"{dollars(consolidation.apart_usd_per_month)} with machines of their own"
        if today is not None:
            apart = f"{dollars(today)} today and {apart}"
        yield (
            f"{plural(len(names), 'model')} with traffic {'fits' if len(names) == 1 else 'fit'} on "
            f"{plural(machines, 'instance')}: {dollars(consolidation.usd_per_month)} a month, "
            f"instead of {apart}; "
            f"no packing costs less than {dollars(consolidation.least_usd_per_month)}."
        )
    if consolidation.left_out:
        count = len(consolidation.left_out)
        verb = "has" if count == 1 else "have"
        yield f"{plural(count, 'model')} with traffic {verb} no place among them."


def _cheapest(models: Sequence[FleetModel], devices: Sequence[FleetDevice]) -> Iterator[str]:
    """Return where models cost least: ``At full load, 9 of 50 cost least on an L4, 30 on a CPU``."""
    answered = [model for model in models if model.failure is None]
    kinds = Counter[str]()
    names = {device.slug: short_name(device.name) for device in devices}
    for model in answered:
        if model.cheapest is not None:
            cell = model.cells[model.cheapest]
            name = "CPU" if cell.kind == "cpu" else names.get(cell.device, cell.device)
            kinds[f"{_article(name)} {name}"] += 1
    # Names break ties, so that the order of models does not.
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count:,} on {name}" for name, count in ordered[:_NAMED]]
    rest = sum(count for _, count in ordered[_NAMED:])
    if rest:
        parts.append(f"{rest:,} on others")
    if parts:
        first, _, where = parts[0].partition(" on ")
        verb = "costs" if first == "1" else "cost"
        yield f"At full load, {first} of {len(models):,} {verb} least on {listed([where, *parts[1:]])}."


def _article(name: str) -> str:
    """Return ``an L4``, ``an RTX 4090``, ``a T4``, ``a GeForce``."""
    word = re.split(r"[\s-]", name)[0]
    spelt = not re.search("[a-z]", word)
    vowel = word[:1] in _SPOKEN_WITH_A_VOWEL if spelt else word[:1] in "AEIO"
    return "an" if vowel else "a"


def _biased(devices: Sequence[FleetDevice], biases: Sequence[DeviceBias]) -> Iterator[str]:
    names = {device.slug: short_name(device.name) for device in devices}
    for bias in biases:
        name = names.get(bias.device, bias.device)
        yield (
            f"On the {name} {plural(bias.models, 'measured model')} took {factor(bias.ratio)} the predicted "
            f"time ({factor(bias.low)} to {factor(bias.high)}): "
            "the other predictions on it are corrected by that."
        )


def _without_answer(models: Sequence[FleetModel]) -> Iterator[str]:
    nowhere = sum(bool(model.cells) and not any(cell.is_usable for cell in model.cells) for model in models)
    if nowhere:
        verb = "runs, fits or keeps its limit" if nowhere == 1 else "run, fit or keep their limits"
        yield f"{nowhere:,} {verb} on no device."
    failed = sum(model.failure is not None for model in models)
    if failed:
        yield f"{failed:,} failed."


INDEX_FILE = "index.html"
_PARQUET_FILE = "fleet.parquet"
_FORMATS = (
    Format(
        name="json",
        extension=FLEET_FILE,
        writer="analyzer.record.encoding:fleet_to_json",
        mark=marked_by(r'\A\{\s*"schema_version":\s*\d+,\s*"tool":\s*\{\s*"name":\s*"analyze"'),
    ),
    Format(
        name="csv",
        extension="fleet.csv",
        writer="analyzer.report.fleet_tables:render",
        mark=marked_by(r"\Amodel,owner,tags,question,device,"),
    ),
    Format(
        name="markdown",
        extension="fleet.md",
        writer="analyzer.report.fleet_page:render_markdown",
        mark=marked_by(r"\A## Fleet: "),
    ),
    Format(name="html", extension=INDEX_FILE, writer="analyzer.report.fleet_page:render", mark=HTML_MARK),
)


def fleet_targets(folder: Path) -> tuple[Target, ...]:
    """Return where each of them goes."""
    return tuple(Target(format=form, path=folder / form.extension) for form in _FORMATS)


def check_fleet_files(folder: Path, *, force: bool = False) -> None:
    """Report what cannot be written before any work is done.

    Raises:
        OutputError: A file there is not ours, or the folder cannot be written.
    """
    check_writable(fleet_targets(folder), force=force)


def write_fleet(fleet: Fleet, folder: Path, *, force: bool = False) -> None:
    """Write all of them, or none.

    Raises:
        OutputError: One cannot be written.
    """
    write_all({target: target.format.write(fleet) for target in fleet_targets(folder)}, force=force)
    try:
        fleet_tables.write(fleet, folder / _PARQUET_FILE)
    except OSError as error:
        raise OutputError(f"{folder / _PARQUET_FILE} cannot be written: {error.strerror or error}.") from error
