"""What the documentation says to type works, and prints what is shown below it.

CONTRIBUTING.md, "Write documentation", says how a page is written; each page's commands run in one folder.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import click
import pytest
from markdown_it import MarkdownIt

from analyzer.cli import COMMANDS, DEFAULT, command_line, run_command_line
from analyzer.costs import registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    *sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if "_build" not in path.parts
    ),
]
# How many blocks of a page are never run; why stands before each of them. Nobody checks what they show.
NOT_RUN: Mapping[str, int] = {
    "README.md": 2,  # installations
    "docs/how-to/apply.md": 2,  # a GPU; models of half a gigabyte
    "docs/how-to/calibrate.md": 1,  # a minute of measurement
    "docs/how-to/cluster.md": 2,  # a cluster
    "docs/how-to/container.md": 1,  # docker
    "docs/how-to/gpu-job.md": 5,  # a GPU
    "docs/how-to/strangers-files.md": 1,  # docker
    "docs/maintaining.md": 1,  # a download
    "docs/tutorials/hugging-face.md": 1,  # an installation
    "docs/tutorials/onnx.md": 1,  # an installation
    "docs/tutorials/own-model.md": 1,  # a measurement
}
NOT_RUN_MARK = re.compile(r"(?:% not run: .+|<!-- not run: .+ -->)")
FILE_MARK = re.compile(r"<!-- file: (\S+) -->")
# Programs that look at what a command has written.
SMALL_PROGRAMS = frozenset({"cat", "cp", "head", "ls", "mkdir", "rm"})
STATUS = ["echo", "$?"]
# A pip command that names this package: its extras are looked up.
OUR_EXTRAS = re.compile(r"onnx-analyzer\[([\w,-]+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A line that is typed, and what is shown below it."""

    line: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page.

    Attributes:
        line: Where it begins in the page, from 1.
        language: The word behind its fence; of a directive its argument (``{code-block} python``).
        caption: The file that it is, empty where it is none.
        text: What is in it, a directive's options left out.
        run: False where the page says why it is not.
    """

    line: int
    language: str
    caption: str
    text: str
    run: bool

    def typed(self) -> list[Typed]:
        """The lines that begin with ``$``; where none does, all of them."""
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        if not any(line.startswith("$ ") for line in lines):
            return [Typed(line=line, shown="") for line in lines if shlex.split(line, comments=True)]
        parts = re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]
        return [Typed(line=first, shown=rest) for first, _, rest in (part.partition("\n") for part in parts)]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in its order."""
    found, lines = [], text.splitlines()
    for token in MarkdownIt("commonmark").parse(text):
        if token.type != "fence" or token.map is None:
            continue
        words, body, caption = token.info.split(), token.content, ""
        if words[:1] == ["{code-block}"]:
            options = re.match(r"(?:^:[^\n]*\n)*", body)
            assert options is not None
            caption_line = re.search(r"^:caption: (.+)$", options[0], re.MULTILINE)
            caption = caption_line[1].strip() if caption_line else ""
            words, body = words[1:], body[options.end() :].lstrip("\n")
        before = next((line for line in reversed(lines[: token.map[0]]) if line.strip()), "").strip()
        file = FILE_MARK.fullmatch(before)
        caption = file[1] if file else caption
        found.append(
            Block(
                line=token.map[0] + 1,
                language=words[0] if words else "",
                caption=caption,
                text=body,
                run=NOT_RUN_MARK.fullmatch(before) is None,
            )
        )
    return found


def page_blocks(page: str) -> list[Block]:
    return blocks((ROOT / page).read_text(encoding="utf-8"))


def run_typed(words: list[str], last_status: int) -> tuple[int, str]:
    """A command's exit status and what it prints on either stream, in the working folder of this process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if words == STATUS:
            return 0, f"{last_status}\n"
        if words[0] == "analyze":
            return run_command_line(words[1:]), said.getvalue()
        if words[0] == "python" and words[1].endswith(".py"):
            with mock.patch.object(sys, "argv", words[1:]):
                try:
                    runpy.run_path(words[1], run_name="__main__")
                except SystemExit as end:
                    return int(end.code or 0), said.getvalue()
            return 0, said.getvalue()
    assert words[0] in SMALL_PROGRAMS, f"{words[0]}: cannot be run here; say why before the block"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def same(shown: str, said: str) -> bool:
    """Whether what is shown is what was said; ``...`` stands for anything, as in a doctest."""
    want, got = (
        "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n" for text in (shown, said)
    )
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


def follow(page_blocks: list[Block], folder: Path) -> list[str]:
    """Writes a page's files and runs its commands; gives what was otherwise than the page says."""
    wrong, status = [], 0
    if any("samples/" in block.text for block in page_blocks):
        shutil.copytree(ROOT / "samples", folder / "samples")
    for block in page_blocks:
        if block.caption:
            (folder / block.caption).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.caption).write_text(block.text, encoding="utf-8")
        if block.language != "console" or not block.run:
            continue
        for typed in block.typed():
            words = shlex.split(typed.line, comments=True)
            if status and words != STATUS:
                wrong.append(f"line {block.line}: before `{typed.line}` the exit status was {status}")
            status, said = run_typed(words, status)
            if words == STATUS and not typed.shown.strip():
                wrong.append(f"line {block.line}: `echo $?` shows no status")
            if typed.shown.strip() and not same(typed.shown, said):
                wrong.append(f"line {block.line}: `{typed.line}` says\n{said}")
    return wrong if not status else [*wrong, f"the last exit status was {status}"]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("default")  # those of a user's own process
def test_every_command_of_a_page_works_and_prints_what_is_shown(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    modules = dict(sys.modules)
    # A program of a page may count an operator of its own; in the next it is nobody's again.
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    try:
        wrong = follow(page_blocks(page), tmp_path)
    finally:
        for name in [name for name, module in sys.modules.items() if name not in modules and _lies_in(module)]:
            del sys.modules[name]
    assert not wrong, "\n\n".join(wrong)


def _lies_in(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(Path.cwd())


def test_what_is_not_run_is_counted() -> None:
    counted = {page: sum(not block.run for block in page_blocks(page)) for page in PAGES}
    assert {page: count for page, count in counted.items() if count} == NOT_RUN


def parse(arguments: list[str]) -> None:
    """Has Click read a command; it raises where there is no such option, or a value is of another type."""
    named = arguments[0] in COMMANDS
    command = command_line.get_command(click.Context(command_line), arguments[0] if named else DEFAULT)
    assert command is not None
    with contextlib.suppress(click.exceptions.Exit):  # --help, --version
        command.make_context("analyze", arguments[named:])


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_every_option_and_extra_that_a_command_names_exists(page: str) -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for block in page_blocks(page):
        for typed in block.typed() if block.language == "console" else []:
            words = shlex.split(typed.line, comments=True)
            if words[0] == "analyze":
                parse(words[1:])
            named = OUR_EXTRAS.findall(typed.line)
            assert {extra for names in named for extra in names.split(",")} <= extras, typed.line


def test_every_file_of_ours_that_a_command_of_contributing_names_exists() -> None:
    """Its recipes are followed elsewhere, on a copy; of the rest, that takes long, this is looked at."""
    named = {
        word.split("::")[0]
        for block in page_blocks("CONTRIBUTING.md")
        for typed in (block.typed() if block.language == "console" else [])
        for word in shlex.split(typed.line, comments=True)
        if word.startswith(("samples/", "tests/")) and not word.startswith("tests/output/")
    }
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("$ analyze rules A101\nA101 another-name ...", "`analyze rules A101` says"),
        ("$ analyze rules A999\n$ analyze rules", "before `analyze rules` the exit status was 2"),
        ("$ analyze rules A999", "the last exit status was 2"),
        ("$ analyze rules A999\n$ echo $?\n1", "`echo $?` says\n2"),
        ("$ analyze rules A999\n$ echo $?", "shows no status"),
        ("$ analyze rules A101\nA101 no-cuda-kernel (error)\n...", ""),
        ("$ analyze rules A999\n...no rule 'A999'...\n$ echo $?\n2", ""),
    ],
)
def test_a_page_that_is_wrong_is_told_and_one_that_is_right_is_not(
    typed: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = follow(blocks(f"```console\n{typed}\n```\n"), tmp_path)
    assert told in "\n".join(wrong)
    assert bool(told) == bool(wrong)


def test_a_block_that_is_not_run_and_a_file_of_a_page_are_read_as_such() -> None:
    marked, file, plain = blocks(
        "% not run: needs a GPU\n\n```console\n$ analyze x.py\n```\n\n"
        "```{code-block} python\n:caption: x.py\n\nmodel = 1\n```\n\n```console\n$ a \\\n    b\nc\n```\n"
    )
    assert (marked.run, plain.run) == (False, True)
    assert (file.caption, file.text, file.language) == ("x.py", "model = 1\n", "python")
    assert plain.typed() == [Typed(line="a b", shown="c")]
