"""A comparison for human eyes: plain text for a terminal, Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from analyzer.report.compare.comparison import (
    ComparedFigure,
    Comparison,
    Difference,
    ModuleChange,
    OperatorChange,
    OperatorEntry,
)
from analyzer.report.compare.sentences import headline, statements
from analyzer.report.compare.tree_page import fusion_lines, module_title
from analyzer.report.escaping import escape, printable
from analyzer.report.summary.figure_words import joules, per_second
from analyzer.text import loggable
from analyzer.units import UNKNOWN, byte_count, count, dollars, factor, flop_count, seconds

# Lines of each list; the JSON holds all.
MOST = 10
_UNITS: Mapping[str, Callable[[float | None], str]] = {
    "s": seconds,
    "B": byte_count,
    "FLOP": flop_count,
    "x": factor,
    "/s": per_second,
    "$": dollars,
    "J": joules,
}


def render_text(comparison: Comparison) -> str:
    """Differences first, then every figure side by side, in columns."""
    lines = [*_answer(comparison), ""]
    for difference in comparison.differences:
        lines += [f"{comparison.labels[0]} -> {difference.label}", ""]
        for title, entries in sections(difference):
            lines.append(f"  {title}")
            lines += [f"    {entry}" for entry in entries]
            lines.append("")
    lines += _columns(side_by_side(comparison))
    lines += ["", *(f"note: {note}" for note in comparison.notes)]
    return loggable("\n".join(printable(line).rstrip() for line in lines).rstrip()) + "\n"


def render_markdown(comparison: Comparison) -> str:
    """The same as tables and lists."""
    head, *rows = side_by_side(comparison)
    lines = [
        f"## {escape(' -> '.join(comparison.labels))}",
        "",
        # A backslash at the end of a line breaks it there (CommonMark); else the sentences would run together.
        *(f"{escape(line)}\\" for line in _answer(comparison)[:-1]),
        escape(_answer(comparison)[-1]),
        "",
        f"| {' | '.join(map(escape, head))} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(map(escape, row))} |" for row in rows),
        "",
    ]
    for difference in comparison.differences:
        for title, entries in sections(difference):
            name = f" in {difference.label}" if len(comparison.differences) > 1 else ""
            lines += [f"**{escape(title + name)}**", "", *(f"- {escape(entry)}" for entry in entries), ""]
    lines += [f"Note: {escape(note)}" for note in comparison.notes]
    return loggable("\n".join(lines).rstrip()) + "\n"


def _answer(comparison: Comparison) -> list[str]:
    """The answer in sentences, each a line."""
    return [line for line in (*headline(comparison), *statements(comparison)) if line]


def sections(difference: Difference) -> list[tuple[str, list[str]]]:
    """Title and lines of each list that is not empty."""
    lists = [
        ("flipped device", [_flipped(change) for change in difference.flipped]),
        (
            "new findings",
            [f"{entry.severity} {entry.code} {entry.message}" for entry in difference.findings_new],
        ),
        (
            "findings gone",
            [f"{entry.severity} {entry.code} {entry.message}" for entry in difference.findings_gone],
        ),
        ("slower", [_times(change) for change in difference.slower]),
        ("faster", [_times(change) for change in difference.faster]),
        ("new operators", [_entry(entry) for entry in difference.new]),
        ("operators gone", [_entry(entry) for entry in difference.gone]),
    ]
    filled = [(f"{title} ({len(lines)})", _shortened(lines)) for title, lines in lists if lines]
    # Those of one kind are one line; the number is that of all.
    for title, fusions in (
        ("new fusions", difference.fusions_new),
        ("fusions gone", difference.fusions_gone),
    ):
        if fusions:
            filled.append((f"{title} ({len(fusions)})", _shortened(fusion_lines(fusions))))
    if difference.modules:
        filled.append(("changed most, by module", [_module(change) for change in difference.modules]))
    return filled or [(f"no operator differs ({difference.matched} matched)", [])]


def side_by_side(comparison: Comparison) -> list[list[str]]:
    """A table: a heading, facts that differ, then figures with their ratio to the base."""
    rows = [["", *comparison.labels]]
    rows += [[fact.label, *fact.values] for fact in comparison.facts if fact.differs]
    rows += [
        [figure.label, *_cells(figure)] for figure in comparison.figures if _is_of_its_own(comparison, figure)
    ]
    return rows


def _is_of_its_own(comparison: Comparison, figure: ComparedFigure) -> bool:
    """Whether it is no figure of a best plan that is a single device's: that one stands there already."""
    # A key that keeps its prefix is of no best plan.
    name = figure.key.removeprefix("plans.hybrid.")
    twins = [comparison.figure(f"plans.{side}.{name}") for side in ("cpu", "gpu")]
    return name == figure.key or all(twin is None or twin.values != figure.values for twin in twins)


def figure_text(value: float | None, unit: str) -> str:
    """A figure with its unit."""
    if value is None:
        return UNKNOWN
    written = _UNITS.get(unit)
    return written(value) if written else count(int(value))


def _cells(figure: ComparedFigure) -> list[str]:
    base = figure.values[0]
    cells = []
    for position, value in enumerate(figure.values):
        text = figure_text(value, figure.unit)
        if position and value is not None and base is not None and value != base:
            text += f" ({_change(base, value)})"
            # The change may be nothing but the error of both figures.
            if figure.overlap and figure.overlap[position]:
                text += " within the interval"
        if figure.origins and figure.origins[position]:
            text += f" {figure.origins[position]}"
        cells.append(text)
    return cells


def _change(base: float, value: float) -> str:
    """``+12 %``; beyond a doubling the ratio; from 0 the difference alone."""
    if base == 0:
        return "was 0"
    # Beyond a doubling a percentage misleads: "+900 %" is ten times as much.
    ratio = value / base
    return factor(ratio) if ratio >= 2 or ratio <= 0.5 else f"{(ratio - 1) * 100:+.1f} %"


def _flipped(change: OperatorChange) -> str:
    parts = []
    if change.placed_on is not None:
        parts.append(f"ONNX Runtime puts it on {change.placed_on[1]}, before on {change.placed_on[0]}")
    if change.device is not None:
        parts.append(f"best plan has it on {change.device[1]}, before on {change.device[0]}")
    return f"{change.name}{_at(change.where)}: {'; '.join(parts)}"


def _times(change: OperatorChange) -> str:
    if change.base_s is None or change.new_s is None:
        return f"{change.name}{_at(change.where)}"
    ratio = f" ({_change(change.base_s, change.new_s)})"
    doubt = "" if change.certain else ", within the intervals"
    return (
        f"{change.name}{_at(change.where)}: {seconds(change.base_s)} -> {seconds(change.new_s)}{ratio}{doubt}"
    )


def _module(change: ModuleChange) -> str:
    times = f"{seconds(change.base_s)} -> {seconds(change.new_s)}"
    if not change.base_s or change.new_s is None:
        return f"{module_title(change)}: {times}"
    return f"{module_title(change)}: {times} ({_change(change.base_s, change.new_s)})"


def _entry(entry: OperatorEntry) -> str:
    time = f": {seconds(entry.time_s)}" if entry.time_s is not None else ""
    return f"{entry.name}{_at(entry.where)}{time}"


def _at(where: str) -> str:
    return f" ({where})" if where else ""


def _shortened(lines: list[str]) -> list[str]:
    return [*lines[:MOST], f"and {len(lines) - MOST} more"] if len(lines) > MOST else lines


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
