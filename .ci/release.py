"""Whether a release can be made, and what it says.

    python .ci/release.py check v0.2.0                  # the tag, the version and the changelog agree
    python .ci/release.py files v0.2.0 dist/*.whl       # the wheel has every file of the package, and no other
    python .ci/release.py notes v0.2.0                  # the changelog's part, for the page of the release

Exit status 0 where all holds, 1 where something does not, with one line for each.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## (\S+)(?: +(.*))?$", re.MULTILINE)
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
# Where the wheel has what the repository keeps elsewhere; pyproject.toml moves it.
MOVED = {"templates/": "analyzer/templates/"}


def main(arguments: list[str] | None = None) -> int:
    """Does what was asked, and prints what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "notes", "files"):
        command = commands.add_parser(name)
        command.add_argument("tag")
        if name == "files":
            command.add_argument("wheel", type=Path)
        if name == "notes":
            command.add_argument("--output", type=Path, help="a file in place of standard output")
    asked = parser.parse_args(arguments)
    version = version_in((ROOT / "analyzer/__init__.py").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = problems(asked.tag, version, changelog)
    if asked.command == "files":
        wrong += problems_of_wheel(asked.wheel, version, tracked_files())
    for problem in wrong:
        print(problem, file=sys.stderr)
    if wrong:
        return 1
    if asked.command == "notes":
        text = section(changelog, version)[1] + "\n"
        if asked.output is None:
            sys.stdout.write(text)
        else:
            asked.output.write_text(text, encoding="utf-8")
    else:
        print(
            f"{asked.tag}: {'nothing of the package is missing' if asked.command == 'files' else 'all agrees'}"
        )
    return 0


def version_in(source: str) -> str:
    """The package's version, read without importing it."""
    found = VERSION.search(source)
    if found is None:
        raise ValueError('analyzer/__init__.py has no line `__version__ = "..."`')
    return found[1]


def problems(tag: str, version: str, changelog: str) -> list[str]:
    """What of the tag, the version and the changelog does not agree, a line each."""
    wrong = []
    if tag != f"v{version}":
        wrong.append(f"the tag is {tag}, and analyzer.__version__ is {version}: its tag is v{version}")
    try:
        dated, text = section(changelog, version)
    except KeyError:
        return [*wrong, f"CHANGELOG.md has no heading `## {version} - YYYY-MM-DD`"]
    if not is_date(dated):
        wrong.append(f"CHANGELOG.md has `## {version} {dated}`, where `## {version} - YYYY-MM-DD` has to stand")
    if not re.search(r"^- ", text, re.MULTILINE):
        wrong.append(f"CHANGELOG.md says nothing under {version}")
    newest = HEADING.search(changelog)
    if newest is not None and newest[1] != version:
        wrong.append(f"CHANGELOG.md begins with {newest[1]}, not with {version}")
    return wrong


def section(changelog: str, version: str) -> tuple[str, str]:
    """What stands beside a version's heading, and its part of the changelog; KeyError where there is none."""
    headings = list(HEADING.finditer(changelog))
    for place, heading in enumerate(headings):
        if heading[1] == version:
            end = headings[place + 1].start() if place + 1 < len(headings) else len(changelog)
            return heading[2] or "", changelog[heading.end() : end].strip()
    raise KeyError(version)


def is_date(text: str) -> bool:
    """Whether this is `- 2026-11-24`, a day that there is."""
    if not re.fullmatch(r"- \d{4}-\d{2}-\d{2}", text):
        return False
    try:
        date.fromisoformat(text.removeprefix("- "))
    except ValueError:
        return False
    return True


def tracked_files() -> set[str]:
    """The files of the package, as the wheel has to name them; those not yet committed too."""
    options = ("--cached", "--others", "--exclude-standard", "-z")
    listed = subprocess.run(
        ["git", "ls-files", *options, "analyzer", *MOVED], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {in_the_wheel(path) for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()}


def in_the_wheel(path: str) -> str:
    """Where the wheel has a file of the repository."""
    for here, there in MOVED.items():
        if path.startswith(here):
            return there + path.removeprefix(here)
    return path


def problems_of_wheel(wheel: Path, version: str, expected: set[str]) -> list[str]:
    """What a wheel lacks or has too much, a line each."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    about = f"onnx_analyzer-{version}.dist-info/"
    held = {name for name in names if not name.startswith(about)}
    wrong = [f"{wheel.name} lacks {name}" for name in sorted(expected - held)]
    wrong += [f"{wheel.name} has {name}, which the repository has not" for name in sorted(held - expected)]
    if not any(name.startswith(about + "licenses/") for name in names):
        wrong.append(f"{wheel.name} has no licence")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
