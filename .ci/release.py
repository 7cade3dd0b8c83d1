"""Check whether a release can be made, and print its notes.

    python .ci/release.py check v0.2.0                  # the tag, the version and the changelog agree
    python .ci/release.py files v0.2.0 dist/*           # wheel and sdist have what they must, and nothing else
    python .ci/release.py notes v0.2.0                  # the changelog's part, for the page of the release

Exit status 0 where all holds, 1 where something does not, with one line for each.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## (\S+)(?: +(.*))?$", re.MULTILINE)
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
# What the sdist has besides the package and its templates: enough to build the wheel.
SDIST = (
    ".ci/project_metadata.py",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "PKG-INFO",
)
WHEEL = ("METADATA", "RECORD", "WHEEL", "entry_points.txt")
# Both are about 2 MB; half as much again would be data that belongs elsewhere.
MOST_BYTES = 3_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run one command and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "notes", "files"):
        command = commands.add_parser(name)
        command.add_argument("tag")
        if name == "files":
            command.add_argument("packages", type=Path, nargs="+")
        if name == "notes":
            command.add_argument("--output", type=Path, help="a file in place of standard output")
    options = parser.parse_args(arguments)
    version = version_in((ROOT / "analyzer/__init__.py").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = problems(options.tag, version, changelog)
    if options.command == "files":
        for package in options.packages:
            wrong += problems_of_package(package, expected_files(package, version, tracked_files()))
    for problem in wrong:
        print(problem, file=sys.stderr)
    if wrong:
        return 1
    if options.command == "notes":
        text = section(changelog, version)[1] + "\n"
        if options.output is None:
            sys.stdout.write(text)
        else:
            options.output.write_text(text, encoding="utf-8")
    else:
        print(f"{options.tag}: no problem")
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
    """Return the files of the package and its templates, those not yet committed too."""
    options = ("--cached", "--others", "--exclude-standard", "-z")
    listed = subprocess.run(
        ["git", "ls-files", *options, "analyzer", "templates"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return {path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()}


def expected_files(package: Path, version: str, sources: set[str]) -> set[str]:
    """Return the files that a wheel or sdist has to hold, and no other."""
    if package.suffix != ".whl":
        return {f"onnx_analyzer-{version}/{path}" for path in (*sources, *SDIST)}
    about = f"onnx_analyzer-{version}.dist-info"
    licences = {f"{about}/licenses/{path}" for path in ("LICENSE", *sources) if path.endswith("LICENSE")}
    # templates/ is inside the package there (pyproject.toml).
    moved = {f"analyzer/{path}" if path.startswith("templates/") else path for path in sources}
    return moved | licences | {f"{about}/{name}" for name in WHEEL}


def held_files(package: Path) -> set[str]:
    """Return the files of a wheel or sdist."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            return {entry.filename for entry in wheel.infolist() if not entry.is_dir()}
    with tarfile.open(package) as sdist:
        return {entry.name for entry in sdist if not entry.isdir()}


def problems_of_package(package: Path, expected: set[str]) -> list[str]:
    """Return what a wheel or sdist lacks or has too much, a line each."""
    held = held_files(package)
    wrong = [f"{package.name} lacks {name}" for name in sorted(expected - held)]
    wrong += [f"{package.name} has {name}, which does not belong there" for name in sorted(held - expected)]
    if package.stat().st_size > MOST_BYTES:
        wrong.append(f"{package.name} is over {MOST_BYTES / 1e6:.0f} MB")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
