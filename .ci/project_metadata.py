"""What a package says that the repository does not know of itself: where it lives.

The address is one value, which the release gives: ``ANALYZER_REPOSITORY=https://HOST/OWNER/NAME``. With it the
package has links, and the README's relative ones lead to the files of this version, since a package index shows
it alone. Without it the package has no links, for none is invented. A wheel made from an sdist has its links.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "ANALYZER_REPOSITORY"
ADDRESS = re.compile(r"https://[\w.-]+(?:/[\w.-]+){2,}")
# A link or image whose target is neither an address nor a place on the same page.
RELATIVE = re.compile(r"(?P<image>!)?(?P<text>\[[^\]]*\]\()(?![a-z]+:|#|/)(?P<target>[^)\s]+\))")


class ProjectMetadata(MetadataHookInterface):
    """Gives the README, and links where the repository's address is known."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds ``readme`` and ``urls``; what an sdist has brought along stays."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = address(os.environ.get(VARIABLE, ""))
        if repository:
            at_version = f"{repository}/blob/v{metadata['version']}"
            text = RELATIVE.sub(lambda found: absolute(found, repository, metadata["version"]), text)
            metadata.setdefault("urls", urls(repository, at_version))
        metadata.setdefault("readme", {"content-type": "text/markdown", "text": text})


def absolute(found: re.Match[str], repository: str, version: str) -> str:
    """Return the link at this version; an image needs the file itself, not the page that shows it."""
    kind = "raw" if found["image"] else "blob"
    return f"{found['image'] or ''}{found['text']}{repository}/{kind}/v{version}/{found['target']}"


def address(given: str) -> str:
    """The address as it was given, checked, without an end that means nothing."""
    repository = given.strip().removesuffix("/").removesuffix(".git")
    if repository and not ADDRESS.fullmatch(repository):
        raise ValueError(f"{VARIABLE} is '{given}'; it has to be like https://HOST/OWNER/NAME")
    return repository


def urls(repository: str, at_version: str) -> dict[str, str]:
    """The links of the package, by the names that package indexes know."""
    return {
        "Source": repository,
        "Documentation": f"{at_version}/docs/index.md",
        "Changelog": f"{at_version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
