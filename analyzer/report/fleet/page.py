"""Reporting: a fleet as one page: the answer, what should move, models x devices, failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from analyzer.record.fleet import Fleet, FleetModel
from analyzer.report import price_words
from analyzer.report.charts.chart import coded, compact
from analyzer.report.document import AnswerFigure
from analyzer.report.fleet import document, words
from analyzer.report.html import environment
from analyzer.report.method import Fact
from analyzer.report.summary.figure_words import MARKS, origin_note
from analyzer.text import first_few, plural
from analyzer.units import dollars

# Failures that are shown at once; the others are folded up.
MOST_FAILURES = 20


def render(fleet: Fleet) -> str:
    """Return the fleet as one page; the same fleet gives the same bytes."""
    return environment().get_template("fleet.html.j2").render(build(fleet))


def build(fleet: Fleet) -> dict[str, Any]:
    """Return the template's values; strings are plain text, to be escaped there."""
    questions = {model.question for model in fleet.models}
    failures = words.failed(fleet)
    return {
        "title": words.title(fleet),
        "tool": fleet.tool,
        "left": words.left(fleet),
        "tiles": _tiles(fleet),
        "sections": {section.name: section for section in document.document(fleet).sections},
        "failures": failures[:MOST_FAILURES],
        "more_failures": failures[MOST_FAILURES:],
        "failure_words": words.FAILURES,
        "method": _rests(fleet),
        "questions": {key: word for key, word in words.QUESTIONS.items() if key in questions},
        "marks": origin_note("in its page"),
        "page_of": words.page_of,
        # No chart: nothing is compiled on this page.
        "compiles": False,
        "data": payload(fleet),
    }


def _tiles(fleet: Fleet) -> tuple[AnswerFigure, ...]:
    failures = len(words.failed(fleet))
    requested = words.requested(fleet)
    gpus = sum(device.kind == "gpu" for device in requested)
    others = len(fleet.devices) - len(requested)
    listed = f", and {plural(others, 'CPU')} of the price list" if others else ""

    answered = f"{len(fleet.models) - failures:,} answered, {failures:,} failed"
    there = f"{plural(gpus, 'GPU')}, {plural(len(requested) - gpus, 'CPU')}{listed}"
    tiles = [
        AnswerFigure("models", "Models", f"{len(fleet.models):,}", answered, bad=bool(failures)),
        AnswerFigure("devices", "Devices", f"{len(requested):,}", there),
    ]
    if fleet.moves or any(model.today for model in fleet.models):
        certain = sum(move.certain for move in fleet.moves)
        tiles.append(
            AnswerFigure("moves", "Should move", f"{len(fleet.moves):,}", f"{certain:,} of them certain")
        )
    if (packed := fleet.consolidation) is not None:
        apart = f"{dollars(packed.apart_usd_per_month)} with instances of its own for each"
        tiles.append(
            AnswerFigure("sharing", "Sharing machines", f"{dollars(packed.usd_per_month)} a month", apart)
        )
    return tuple(tiles)


def _rests(fleet: Fleet) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """Return the basis of the figures."""
    environment = fleet.environment
    devices = ", ".join(f"{device.name} ({device.slug})" for device in words.requested(fleet))
    question = (
        ("Devices", devices),
        ("Prices", price_words.KINDS[fleet.pricing]),
    )
    place = [
        ("Where", environment.where),
        ("Date", environment.date),
        ("Kept from before", first_few(environment.kept, 5) if environment.kept else ""),
        *((name, str(value)) for name, value in environment.facts.items()),
    ]
    versions = [(fleet.tool.name, fleet.tool.version), *environment.versions.items()]
    sections = (
        ("The question", question),
        ("Where and when", tuple((name, value) for name, value in place if value)),
        ("Versions", tuple((name, value) for name, value in versions)),
    )
    return tuple(section for section in sections if section[1])


# Fields of a cell as they are: figures, and words.
_FIGURES = (
    *("batch", "runs", "fits", "meets", "latency_s", "low_s", "high_s", "ttft_s", "tpot_s"),
    *("memory_bytes", "usd_per_million", "usd_low_per_million", "usd_high_per_million", "usd_per_month"),
    *("usd_low_per_month", "usd_high_per_month"),
    *("usd_per_hour", "energy_j", "count", "throughput_per_s"),
)
_WORDS = ("precision", "origin", "remark")


def payload(fleet: Fleet) -> dict[str, Any]:
    """Return the data of the page's script."""
    names = words.device_names(fleet)
    kinds = {cell.device: cell.kind for model in fleet.models for cell in model.cells}
    kinds |= {device.slug: device.kind for device in fleet.devices}
    unnamed = {device.slug for device in fleet.devices if not device.named}
    return {
        "devices": [
            {"slug": slug, "name": name, "kind": kinds[slug], "named": slug not in unnamed}
            for slug, name in names.items()
        ],
        "models": _models(fleet),
        "cells": _cells(fleet.models, tuple(names)),
        "per": words.PER,
        "per_short": words.PER_SHORT,
        "verdicts": words.VERDICTS,
        "questions": words.QUESTIONS,
        "failures": words.FAILURES,
        "marks": {mark.name: mark.sign for mark in MARKS.values()},
        # The scripts are the report's own and look for these.
        "operators": {},
        "modules": {},
        "groups": [],
    }


def _models(fleet: Fleet) -> dict[str, Any]:
    models = fleet.models
    saved = {move.model: move.saved_usd_per_month for move in fleet.moves}
    failures = [model.failure for model in models]
    return {
        "name": [model.name for model in models],
        "reference": coded(model.reference for model in models),
        "question": coded(model.question for model in models),
        "owner": coded(model.owner for model in models),
        "tags": [list(model.tags) for model in models],
        "verdict": coded(model.device for model in models),
        "sentence": coded(model.sentence for model in models),
        "errors": _column(model.errors for model in models),
        "warnings": _column(model.warnings for model in models),
        "parameters": _column(model.parameters for model in models),
        "size": [len(model.cells) for model in models],
        "best": _column(model.best for model in models),
        "cheapest": _column(model.cheapest for model in models),
        "saved": _column(compact(saved.get(model.name)) for model in models),
        "percentile": coded(words.percentile(model) for model in models),
        "traffic": coded(words.traffic(model) for model in models),
        "today": coded(
            words.instances(model.today.count, model.today.instance) if model.today else "" for model in models
        ),
        "options": coded(
            " ".join(f"--{name} {value}" for name, values in model.options.items() for value in values)
            for model in models
        ),
        "notes": coded("; ".join(model.notes) for model in models),
        "failure": coded(failure.kind if failure else "" for failure in failures),
        "message": coded(failure.message if failure else "" for failure in failures),
        "hint": coded(failure.hint if failure else "" for failure in failures),
    }


def _cells(models: Sequence[FleetModel], slugs: Sequence[str]) -> dict[str, Any]:
    """All cells in a row, model after model."""
    places = {slug: at for at, slug in enumerate(slugs)}
    cells = [cell for model in models for cell in model.cells]
    return {
        "device": _column(places[cell.device] for cell in cells),
        **{name: _column(compact(getattr(cell, name)) for cell in cells) for name in _FIGURES},
        **{name: _texts(getattr(cell, name) for cell in cells) for name in _WORDS},
        "plan": _texts(words.plan(cell) for cell in cells),
        "machine": _texts(words.machine(cell) for cell in cells),
    }


def _column(values: Iterable[Any]) -> Any:
    """Return a list, or one value alone where all are the same."""
    every = list(values)
    # A bool equals its number: only what reads the same is.
    return {"all": every[0]} if every and all(value is every[0] for value in every) else every


def _texts(values: Iterable[str]) -> Any:
    column = coded(values)
    return {"all": column["of"][0]} if len(column["of"]) == 1 else column
