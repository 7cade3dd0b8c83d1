"""Snapshots of hand-made records, comparisons and fleets: what every format for people says of them.

The first of a family is whole; every other one is the lines by which it differs from the first.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rendering
from snapshots import hold, of_csv, of_json, of_page, scrubbed

from analyzer.record.analysis import Analysis
from analyzer.report import fleet_page, fleet_tables, html
from analyzer.report.compare import document
from analyzer.report.compare.comparison import Comparison

EXPECTED = Path(__file__).parent / "expected"


def hold_case(name: str, subject: Any, base: Mapping[str, str], *, update: bool) -> None:
    """Hold what formats say of one, or by what lines it differs from the first of its family."""
    got = shown(subject)
    parts = {format_of: _changes(base.get(format_of, ""), text) for format_of, text in got.items()}
    text = "\n\n".join(f"== {format_of}\n{changes.rstrip()}" for format_of, changes in parts.items() if changes)
    hold(EXPECTED / f"{name}.txt", scrubbed(text) + "\n", update=update)


def shown(subject: Any) -> dict[str, str]:
    """Return the text, the page and what its script gets; other formats render the same document."""
    if isinstance(subject, Comparison):
        return {
            "text": document.render_text(subject),
            "page": of_page(document.render(subject)),
            "data": of_json(json.dumps(document.build(subject)["data"])),
        }
    if isinstance(subject, Analysis):
        text, screen = rendering.text(subject), rendering.screen(subject, 80)
        # A command is copied whole.
        assert max(len(line) for line in text.splitlines() if "analyze " not in line) <= 100
        assert max(len(line.rstrip()) for line in screen.splitlines() if "analyze " not in line) <= 80
        return {
            "text": text,
            "mail": rendering.mail(subject),
            "page": of_page(html.render(subject)),
            "csv": of_csv(subject.render("csv")),
            "data": of_json(json.dumps(html.build(subject)["data"])),
        }
    return {
        "markdown": fleet_page.render_markdown(subject),
        "page": of_page(fleet_page.render(subject)),
        "csv": of_csv(fleet_tables.render(subject)),
        "data": of_json(json.dumps(fleet_page.build(subject)["data"])),
    }


def _changes(base: str, text: str) -> str:
    if not base:
        return text
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
