"""Reporting: a fleet as one page: the answer, what should move, models x devices, failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyzer.record.fleet import Fleet
from analyzer.report import price_words
from analyzer.report.answer import AnswerFigure
from analyzer.report.fleet import packed, sheets, words
from analyzer.report.html import environment
from analyzer.report.method import Fact
from analyzer.report.summary.figure_words import MARKS
from analyzer.text import first_few, plural
from analyzer.units import dollars

# Failures that are shown at once; the others are folded up.
MOST_FAILURES = 20


def render(fleet: Fleet) -> str:
    """The fleet as one page; the same fleet gives the same bytes."""
    return environment().get_template("fleet.html.j2").render(build(fleet))


def build(fleet: Fleet) -> dict[str, Any]:
    """What the template is given; strings are plain text, to be escaped there."""
    first, *more = words.answer(fleet)
    failures = words.failed(fleet)
    consolidation = fleet.consolidation
    return {
        "title": words.title(fleet),
        "tool": fleet.tool,
        "sentence": first,
        "beside": more,
        "left": words.left(fleet),
        "changes": fleet.changes,
        "prices": words.pricing(fleet),
        "tiles": _tiles(fleet),
        "moves": sheets.moves(fleet),
        "models": sheets.models(fleet),
        "failures": failures[:MOST_FAILURES],
        "more_failures": failures[MOST_FAILURES:],
        "failure_words": words.FAILURES,
        "shared": sheets.shared(fleet),
        "consolidated": words.consolidated(fleet),
        "left_out": tuple(consolidation.left_out.items()) if consolidation else (),
        "packing_notes": consolidation.notes if consolidation else (),
        "biases": sheets.biases(fleet),
        "method": _rests(fleet),
        "questions": {key: word for key, word in words.QUESTIONS.items() if _asked(fleet, key)},
        "marks": tuple(
            replace(mark, meaning=mark.meaning.replace("under Method", "in its page")) for mark in _marks()
        ),
        "page_of": words.page_of,
        # No chart: nothing is compiled on this page.
        "compiles": False,
        "data": packed.payload(fleet),
    }


def _marks() -> tuple[Any, ...]:
    return tuple(mark for mark in MARKS.values() if mark.name != "modelled")


def _asked(fleet: Fleet, question: str) -> bool:
    return any(model.question == question for model in fleet.models)


def _tiles(fleet: Fleet) -> tuple[AnswerFigure, ...]:
    failures = len(words.failed(fleet))
    asked = words.asked(fleet)
    gpus = sum(device.kind == "gpu" for device in asked)
    others = len(fleet.devices) - len(asked)
    listed = f", and {plural(others, 'CPU')} of the price list" if others else ""
    tiles = [
        AnswerFigure(
            name="models",
            title="Models",
            figure=f"{len(fleet.models):,}",
            note=f"{len(fleet.models) - failures:,} answered, {failures:,} failed",
            bad=bool(failures),
        ),
        AnswerFigure(
            name="devices",
            title="Devices",
            figure=f"{len(asked):,}",
            note=f"{plural(gpus, 'GPU')}, {plural(len(asked) - gpus, 'CPU')}{listed}",
        ),
    ]
    if fleet.moves or any(model.today for model in fleet.models):
        certain = sum(move.certain for move in fleet.moves)
        tiles.append(
            AnswerFigure(
                name="moves",
                title="Should move",
                figure=f"{len(fleet.moves):,}",
                note=f"{certain:,} of them certain",
            )
        )
    if fleet.consolidation is not None:
        told = fleet.consolidation
        tiles.append(
            AnswerFigure(
                name="sharing",
                title="Sharing machines",
                figure=f"{dollars(told.usd_per_month)} a month",
                note=f"{dollars(told.apart_usd_per_month)} with instances of its own for each",
            )
        )
    return tuple(tiles)


def _rests(fleet: Fleet) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """What the figures rest on."""
    told = fleet.environment
    devices = ", ".join(f"{device.name} ({device.slug})" for device in words.asked(fleet))
    asked = (
        ("Devices", devices),
        ("Prices", price_words.KINDS[fleet.pricing]),
    )
    place = [
        ("Where", told.where),
        ("Date", told.date),
        ("Kept from before", first_few(told.kept, 5) if told.kept else ""),
        *((name, str(value)) for name, value in told.facts.items()),
    ]
    versions = [(fleet.tool.name, fleet.tool.version), *told.versions.items()]
    sections = (
        ("The question", asked),
        ("Where and when", tuple((name, value) for name, value in place if value)),
        ("Versions", tuple((name, value) for name, value in versions)),
    )
    return tuple(section for section in sections if section[1])
