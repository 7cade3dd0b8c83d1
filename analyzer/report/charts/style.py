"""Reporting: how Vega draws every chart, on the page and in a picture (one home)."""

from __future__ import annotations

from typing import Any

# What the reader's own system writes in.
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def config(font: str = PAGE_FONT) -> dict[str, Any]:
    """Vega's configuration; colours are variables of the page's style sheet.

    Args:
        font: The families that all text is written in, as CSS names them.
    """
    written = {"labelFont": font, "titleFont": font, "titleFontWeight": 500, "titleFontSize": 12}
    return {
        "background": "transparent",
        "font": font,
        "customFormatTypes": True,
        "view": {"stroke": None},
        "axis": {
            **written,
            "labelColor": "var(--muted)",
            "titleColor": "var(--muted)",
            "gridColor": "var(--line)",
            "domainColor": "var(--line)",
            "tickColor": "var(--line)",
            "labelFontSize": 11,
            "labelOverlap": True,
        },
        "legend": {
            **written,
            "labelColor": "var(--text)",
            "titleColor": "var(--muted)",
            "orient": "top",
            "labelFontSize": 12,
            "columns": 8,
            "symbolOpacity": 1,
            "symbolStrokeColor": "var(--muted)",
            "symbolFillColor": "var(--muted)",
            "labelLimit": 220,
        },
        "text": {"font": font, "color": "var(--text)"},
    }
