"""A Sphinx extension: the tables of the reference, made from the code when the site is built.

A page of ``reference/`` holds ``<!-- generated: NAME -->`` where such a table belongs. What stands in the code
is written nowhere else, so that a page cannot be out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    from analyzer.option_kinds import Command, SettingsTable

MARK = re.compile(r"<!-- generated: ([\w ]+) -->")
# What a key of the record counts in, by how it ends; the first that fits. The rest are counts and shares.
UNITS: tuple[tuple[str, str], ...] = (
    (r"flops_per_s", "FLOP/s"),
    (r"bytes_per_s", "bytes/s"),
    (r"(^|_)tokens_per_s", "tokens/s"),
    (r"examples_per_s", "examples/s"),
    (r"throughput_per_s", "inferences/s"),
    (r"rate_per_s", "requests/s"),
    (r"bytes_per_\w+|(^|_)bytes(_read|_written)?", "bytes"),
    (r"(^|_)usd_.*|(^|_)usd", "US dollars"),
    (r"(^|_)joules_per_\w+|_j", "joules"),
    (r"_hz", "Hz"),
    (r"_w", "W"),
    (r"_s|seconds", "seconds"),
    (r"(^|_)flops", "FLOPs"),
    (r"(^|_)macs", "multiply-accumulates"),
)


def setup(app: Sphinx) -> Mapping[str, Any]:
    """Connects the extension."""
    app.connect("source-read", _fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _fill(_app: Sphinx, _page: str, source: list[str]) -> None:
    source[0] = MARK.sub(lambda mark: _generated(mark[1]), source[0])


def _generated(name: str) -> str:
    kind, _, argument = name.partition(" ")
    return "\n".join(GENERATORS[kind](*argument.split()))


def commands() -> Iterable[str]:
    """Every command with its options, by sphinx-click, in the order of ``analyze --help``."""
    from analyzer.cli import COMMANDS, MODULES

    for name in COMMANDS:
        place = f"analyzer.cli.{MODULES.get(name, name)}:{name}"
        yield f"```{{eval-rst}}\n.. click:: {place}\n   :prog: analyze {name}\n```\n"


def settings() -> Iterable[str]:
    """The keys of the settings file."""
    from analyzer.options import in_settings

    tables: tuple[SettingsTable, ...] = ("tool.analyzer", "tool.analyzer.check")
    for table in tables:
        yield f"\n## `[{table}]`\n"
        rows = [
            (
                f"`{option.name}`",
                option.kind.words + (f", like `{option.kind.example}`" if option.kind.example else ""),
                ", ".join(f"`{command}`" for command in option.commands if table == "tool.analyzer"),
                option.help,
            )
            for option in in_settings(table)
        ]
        yield from _table(("Key", "Value", "Commands", "Meaning"), rows)


def options(command: Command) -> Iterable[str]:
    """The keywords that a function takes beside its own parameters: the options of a command."""
    from analyzer.options import taken_by

    rows = [
        (f"`{option.keyword}`", f"`{option.kind.python}`", option.help_for(command))
        for option in taken_by(command)
        if option.is_keyword
    ]
    yield from _table(("Keyword", "Type", "Meaning"), rows)


def rules() -> Iterable[str]:
    """The rules of the gate, as ``analyze rules`` has them."""
    from analyzer.checks import FAMILIES
    from analyzer.checks import rules as all_rules

    for prefix, family in FAMILIES.items():
        yield f"\n## {prefix}xx: {family}\n"
        for rule in all_rules():
            if not rule.code.startswith(prefix):
                continue
            yield f"({rule.code})=\n### {rule.code} {rule.name}\n\n*{rule.severity}.* {rule.title}\n"
            for heading, text in (
                ("What it finds", rule.what),
                ("Why it matters", rule.why),
                ("How to fix it", rule.fix),
                ("Example", rule.example),
            ):
                yield f"**{heading}.** {_paragraphs(text)}\n"


def operators() -> Iterable[str]:
    """The cost rules, as ``analyze ops`` has them."""
    from analyzer.costs import by_family
    from analyzer.graph import DEFAULT_DOMAIN

    for family, family_rules in by_family().items():
        yield f"\n## {family.replace('_', ' ').capitalize()}\n"
        rows = []
        for rule in family_rules:
            name = rule.op_type if rule.domain == DEFAULT_DOMAIN else f"{rule.domain}::{rule.op_type}"
            basis = f"modelled: {rule.assumes}" if rule.assumes else rule.basis
            more = " ".join(rule.description.split())
            rows.append((f"`{name}`", " ".join(filter(None, (rule.formula, more))), basis))
        yield from _table(("Operator", "FLOPs", "Basis"), rows)


def devices(kind: str) -> Iterable[str]:
    """The catalogue, as ``analyze devices NAME`` has it."""
    from analyzer.cli.catalogues import SUSTAINED, figure_text
    from analyzer.devices import catalogue

    of_kind = {"gpu": catalogue.gpus, "cpu": catalogue.cpus}[kind]()
    for device in of_kind:
        yield f"\n({device.slug})=\n### {device.name}\n"
        called = ", ".join(f"`{alias}`" for alias in catalogue.aliases(device.slug))
        yield f"`{device.slug}`{f', also {called}' if called else ''}.\n"
        if device.kind == "gpu" and not device.runs_release_wheel:
            yield "ONNX Runtime's release wheel has no machine code for it: predicted for reference only.\n"
        rows = [
            (f"`{figure.key}`", figure_text(figure.key, figure.value), figure.basis)
            for figure in catalogue.figures(device.slug)
        ]
        rows += [
            (f"`{key}`", figure_text(SUSTAINED[key], value), "measured elsewhere")
            for key, value in device.sustained.items()
        ]
        yield from _table(("Figure", "Value", "Basis"), rows)
        if device.link is not None:
            speed = figure_text("bandwidth_bytes_per_s", device.link.bandwidth_bytes_per_s)
            yield f"\nLink {device.link.name}: {speed} ({device.link.source}).\n"
        yield f"\nSources: {device.source}\n"
        if device.notes:
            yield f"\n{device.notes}\n"


def record(which: str) -> Iterable[str]:
    """Every key of a record: its type, its unit, what the published schema says of it."""
    from analyzer.record.schema import fleet_schema, schema

    content = {"analysis": schema, "fleet": fleet_schema}[which]()
    top = content["$ref"].rpartition("/")[2]
    paths = _paths(content["$defs"], top)
    # In the order in which the record holds them; each part once, whatever refers to it.
    for name in paths:
        part = content["$defs"][name]
        yield f"\n({which}-{name})=\n## {name}\n"
        if name != top:
            yield "At " + ", ".join(f"`{path}`" for path in paths[name][:4])
            yield (" and elsewhere" if len(paths[name]) > 4 else "") + ".\n"
        yield f"{part['description']}\n"
        rows = []
        for key, value in part["properties"].items():
            need = "" if key in part.get("required", ()) else "Not in every record"
            told = ". ".join(filter(None, (value.get("description", "").rstrip("."), need)))
            rows.append((f"`{key}`", _json_type(value, which), unit_of(key, value), told))
        yield from _table(("Key", "Type", "Unit", "Meaning"), rows)


def unit_of(key: str, value: Mapping[str, Any]) -> str:
    """The unit of a number of the record, empty where it has none."""
    text = str({name: part for name, part in value.items() if name in ("type", "additionalProperties")})
    if "number" not in text and "integer" not in text:
        return ""
    return next((unit for ending, unit in UNITS if re.search(rf"(?:{ending})$", key)), "")


def _paths(parts: Mapping[str, Any], top: str) -> dict[str, list[str]]:
    """Where each part stands in the record, in the order of its keys; the first path is the shortest."""
    paths: dict[str, list[str]] = {top: [""]}
    waiting = [top]
    while waiting:
        name = waiting.pop(0)
        for key, value in parts[name]["properties"].items():
            suffix = "[]" if "'items'" in str(value) else ".*" if "additionalProperties" in str(value) else ""
            for found in re.findall(r"#/\$defs/(\w+)", str(value)):
                if found not in paths:
                    waiting.append(found)
                path = f"{paths[name][0]}.{key}{suffix}".lstrip(".")
                paths.setdefault(found, []).append(path)
    return paths


def _json_type(value: Mapping[str, Any], which: str) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{which}-{name})"
    if "anyOf" in value:
        return " or ".join(_json_type(kind, which) for kind in value["anyOf"])
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    kinds = value.get("type", "anything")
    texts = [kinds] if isinstance(kinds, str) else list(kinds)
    if "prefixItems" in value:
        inner = ", ".join(_json_type(kind, which) for kind in value["prefixItems"])
        texts[texts.index("array")] = f"list of {inner}"
    elif isinstance(value.get("items"), dict):
        texts[texts.index("array")] = f"list of {_json_type(value['items'], which)}"
    if isinstance(value.get("additionalProperties"), dict):
        texts[texts.index("object")] = f"object of {_json_type(value['additionalProperties'], which)}"
    return " or ".join("list" if text == "array" else text for text in texts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    """A table of Markdown, without the columns in which nothing stands."""
    lines = [head, *rows]
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    first, *others = zip(*columns, strict=True)
    yield "| " + " | ".join(first) + " |"
    yield "|" + "---|" * len(first)
    for row in others:
        yield "| " + " | ".join(map(_cell, row)) + " |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _paragraphs(text: str) -> str:
    """A docstring's section as Markdown: settings, which begin with the name of their table, become a block."""
    parts = text.replace("``", "`").split("\n\n")
    return "\n\n".join(f"```toml\n{part}\n```" if part.startswith("[") else part for part in parts)


GENERATORS: Mapping[str, Callable[..., Iterable[str]]] = {
    "commands": commands,
    "settings": settings,
    "options": options,
    "rules": rules,
    "operators": operators,
    "devices": devices,
    "record": record,
}
