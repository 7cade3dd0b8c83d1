"""Reporting: the page that people forward, one file that requests nothing (the only user of Jinja2)."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.record.analysis import Analysis
from analyzer.report import page, record_document
from analyzer.report.document import SCREEN, WHOLE, Block
from analyzer.report.summary.figure_words import MARKS, joules, per_second
from analyzer.text import json_escaped, loggable
from analyzer.units import byte_count, dollars, seconds

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# The last line of a library's build; templates/js/unpack.js takes it off what is carried packed.
_SOURCE_MAP = re.compile(r"\n?(//|/\*)[#@] sourceMappingURL=[^\s*]*(\s*\*/)?\s*\Z")
# ``/*! ... */`` is what minifiers keep for the sake of its licence; builds that keep all begin with a blank.
_NOTICE = re.compile(r"/\*[!\s](.*?)\*/", re.DOTALL)
# The blank between a figure and its unit, by the units that analyzer.units writes.
_FIGURE = re.compile(r"(?<=\d)( )(?=[kMGTPmµn]?(?:s|B|FLOP|J|/s|B/s|FLOP/s)\b|%)")


def templates_dir() -> Path:
    """Return where the templates lie: inside the package in a wheel, beside it in the repository.

    Raises:
        FileNotFoundError: The installation is incomplete.
    """
    # pyproject.toml puts templates/ into the wheel as a folder of the package.
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / "report.html.j2").is_file():
            return folder
    raise FileNotFoundError(f"report.html.j2 is neither in {package / 'templates'} nor beside the package")


def render(analysis: Analysis) -> str:
    """Return the analysis as one HTML page; the same analysis gives the same bytes."""
    return environment().get_template("report.html.j2").render(page.build(analysis))


def notebook(analysis: Analysis) -> str:
    """Return what a notebook shows of an analysis: no scripts, since untrusted notebooks run none."""
    shown = record_document.document(analysis).at(SCREEN)
    blocks = [block for _, blocks in shown for block in blocks]
    return environment().get_template("notebook.html.j2").render(blocks=blocks, marks=tuple(MARKS.values()))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Jinja2 with every string escaped, and data as compact JSON that no markup can leave."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    env = Environment(
        loader=FileSystemLoader(templates_dir()),
        autoescape=True,
        # A misspelt name in a template is an error, not a blank on a page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # The templates of an installed package do not change: no look at the disk for each.
        auto_reload=False,
        finalize=_shown,
    )
    # Jinja2's ``tojson`` also writes <, >, & and ' as escapes, so that no name ends the script it stands in.
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False, "ensure_ascii": False}
    env.globals |= {"asset": asset, "packed": packed, "digest": digest, "notices": notices, "seconds": seconds}
    env.filters |= {
        "unbroken": unbroken,
        "pack": lambda data: pack(json_escaped(data)),
        "kind": lambda block: type(block).__name__,
        "of_kind": _of_kind,
        **{written.__name__: written for written in (seconds, byte_count, dollars, per_second, joules)},
    }
    return env


def _of_kind(blocks: Iterable[Block], kind: str, detail: int = WHOLE) -> list[Block]:
    """Return the blocks of a kind that are shown at a detail."""
    return [block for block in blocks if type(block).__name__ == kind and block.detail <= detail]


def _shown(value: Any) -> Any:
    """Return a value as the page shows it: a stranger's text on one line, which steers nothing."""
    # Markup is of our own making, with line breaks that are meant.
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return loggable(" ".join(value.splitlines()))


def unbroken(text: str) -> str:
    """Return the text with its figures and their units kept on one line."""
    return _FIGURE.sub("\u00a0", text)


@lru_cache(maxsize=32)
def asset(name: str) -> Any:
    """Return a file of the templates' folder, to be inlined as it is (our own or a library's, no user text).

    Raises:
        ValueError: It would end the element that it is put into.
    """
    from markupsafe import Markup

    path = templates_dir() / name
    # Libraries are kept packed.
    gzipped = path.with_name(f"{path.name}.gz")
    content = gzip.decompress(gzipped.read_bytes()) if gzipped.exists() else path.read_bytes()
    text = _SOURCE_MAP.sub("\n", content.decode("utf-8"))
    # In a script no quoting helps: HTML ends the element at the first such tag, even inside of a string.
    if re.search(r"</(script|style)", text, re.IGNORECASE):
        raise ValueError(f"{name} holds an end tag and cannot be inlined")
    return Markup(text)


def _bundle(names: tuple[str, ...]) -> str:
    return "".join(asset(name) for name in names)


def _base64(content: bytes) -> Markup:
    from markupsafe import Markup

    return Markup(base64.b64encode(content).decode("ascii"))  # nothing in it is read as HTML


def pack(text: str) -> Markup:
    """Return the text's gzip as base64, which no markup can leave."""
    # Without the time of the packing, which gzip's header would hold: the same analysis gives the same bytes.
    return _base64(gzip.compress(text.encode(), 6, mtime=0))


@lru_cache(maxsize=32)
def packed(*names: str) -> Markup:
    """Files in a row for the page's own script to unpack; a library alone comes as it is kept."""
    # A library lies packed already: nothing is unpacked to be packed again.
    gzipped = templates_dir() / f"{names[0]}.gz"
    return _base64(gzipped.read_bytes()) if len(names) == 1 and gzipped.exists() else pack(_bundle(names))


@lru_cache(maxsize=32)
def digest(*names: str) -> Markup:
    """Return the sum by which the page's policy lets these files run as one script."""
    # Of the text that the browser runs: unpacked, and without its source map's line.
    return _base64(hashlib.sha256(_bundle(names).encode()).digest())


@lru_cache(maxsize=32)
def notices(name: str) -> tuple[Markup, ...]:
    """Return the authors and licence in a library's own comments."""
    from markupsafe import escape

    comments = (re.sub(r"\n[ *]+", "\n", text).strip() for text in _NOTICE.findall(asset(name)))
    # Markup, so that they keep their lines.
    return tuple(escape(text) for text in comments if re.search(r"\(c\)|licen[cs]e", text, re.IGNORECASE))
