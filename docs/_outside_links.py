"""Links of the pages to what lies outside ``docs/``: on a code host they lead to files, and here too.

Where the repository's address is known (``ANALYZER_REPOSITORY``, as for the package), they lead there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this by its name."""
    app.connect("source-read", _as_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _as_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Sphinx takes a link to Markdown for one to a page of its own; only those of this folder are."""
    folder, docs = (Path(app.srcdir) / page).parent, Path(app.srcdir)
    repository = os.environ.get("ANALYZER_REPOSITORY", "").rstrip("/")

    def led(link: re.Match[str]) -> str:
        path = (folder / link[2]).resolve()
        if path.is_relative_to(docs) or not path.exists():
            return link[0]  # Sphinx follows it, or says that it leads nowhere
        place = path.relative_to(docs.parent).as_posix()
        if repository:
            return f"[{link[1]}]({repository}/blob/main/{place})"
        return f"{link[1]} (`{place}/`)" if path.is_dir() else f"[{link[1]}](path:{link[2]})"

    source[0] = _LINK.sub(led, source[0])
