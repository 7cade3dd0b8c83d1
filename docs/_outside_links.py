"""Links of the pages to documents outside ``docs/``: on a code host they lead to files, and here too."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Sphinx takes a link to Markdown for one to a page of its own; only those of this folder are.
_LINK = re.compile(r"\]\((\.\./[^)#\s]+\.md)\)")


def as_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Lets links that leave the folder of pages lead to a copy of the file."""

    def target(link: re.Match[str]) -> str:
        path = os.path.normpath(app.srcdir / os.path.dirname(page) / link[1])
        return link[0] if path.startswith(f"{app.srcdir}{os.sep}") else f"](path:{link[1]})"

    source[0] = _LINK.sub(target, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this by its name."""
    app.connect("source-read", as_files)
    return {"parallel_read_safe": True}
