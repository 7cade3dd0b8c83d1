"""Makes a failing case smaller: parts are taken out as long as it fails for the same reason.

    python tests/fuzz/shrink.py tests/output/fuzz/failures/graphs-4711

Writes ``shrunk.onnx`` (or ``.json``) into that folder and prints it as ONNX's text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from faults import SECONDS, faults
from fuzz_case import MODEL, Case
from google.protobuf.message import DecodeError
from mutate_graphs import is_list
from mutate_records import places
from runner import Runner

Fails = Callable[[bytes], bool]
Smaller = Callable[[bytes], list[Callable[[], bytes]]]
Steps = tuple[tuple[str, int | range | None], ...]


def without(content: bytes, smaller: Smaller, fails: Fails, tries: int) -> bytes:
    """The smallest content that still fails, as far as so many tries go."""
    progress = True
    while progress:
        progress, position = False, 0
        ways = smaller(content)
        while position < len(ways) and tries > 0:
            tries -= 1
            candidate = ways[position]()
            if fails(candidate):
                content, progress = candidate, True
                ways = smaller(content)  # the next part now stands where this one stood
            else:
                position += 1
    return content


def smaller_models(content: bytes) -> list[Callable[[], bytes]]:
    """The model without one of its parts; no way where it does not parse.

    Outer parts come first, and of each list the last entry: what nothing reads can be taken out.
    """
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        return []
    return [partial(model_without, content, path) for path in sorted(parts_of(model), key=outer_last_first)]


def outer_last_first(path: Steps) -> tuple[bool, int, int]:
    """An order of parts: stretches of lists, then outer ones, then the last of a list."""
    index = path[-1][1]
    if isinstance(index, range):
        return False, -len(index), -index.start
    return True, len(path), -(index or 0)


def model_without(content: bytes, path: Steps) -> bytes:
    """The model without the part at the end of a way."""
    model: Any = onnx.ModelProto.FromString(content)
    *way, (field, index) = path
    message = model
    for name, at in way:
        message = getattr(message, name) if at is None else getattr(message, name)[at]
    if index is None:
        message.ClearField(field)
    elif isinstance(index, range):
        del getattr(message, field)[index.start : index.stop]
    else:
        del getattr(message, field)[index]
    whole: bytes = model.SerializeToString(deterministic=True)
    return whole


def parts_of(message: Any, path: Steps = ()) -> Iterator[Steps]:
    """The ways of all parts that can be taken out."""
    for field, content in message.ListFields():
        items = list(enumerate(content)) if is_list(message, field) else [(None, content)]
        for parts in (2, 4, 8):
            size = len(items) // parts
            if size > 1:
                yield from ((*path, (field.name, range(at, at + size))) for at in range(0, len(items), size))
        for index, item in items:
            here = (*path, (field.name, index))
            yield here
            if field.message_type is not None and len(path) < 30:
                yield from parts_of(item, here)


def smaller_records(content: bytes) -> list[Callable[[], bytes]]:
    """The record without one of its values."""
    try:
        record = json.loads(content)
    except ValueError:
        return []
    return [partial(record_without, content, path) for path in sorted(places(record), key=len)]


def record_without(content: bytes, path: tuple[str | int, ...]) -> bytes:
    """The record without the value at the end of a path."""
    parent = record = json.loads(content)
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    return json.dumps(record).encode()


# Which file of a case is made smaller, and how.
SHRUNK = {"graphs": (MODEL, smaller_models), "records": ("record.json", smaller_records)}


def shrunk(case: Case, runner: Runner, tries: int) -> tuple[bytes, str]:
    """The smallest file and the reason for which it fails; the file as it was where the case does not fail."""
    name, smaller = SHRUNK[case.kind]

    def reasons(content: bytes) -> list[str]:
        outcomes = runner.run(replace(case, files={**case.files, name: content}))
        return [reason for outcome in outcomes for reason in faults(outcome, seconds=runner.seconds)]

    found = reasons(case.files[name])
    if not found:
        return case.files[name], ""
    return without(case.files[name], smaller, lambda content: found[0] in reasons(content), tries), found[0]


def kept_case(folder: Path) -> Case:
    """A case as ``run.keep`` wrote it: the files count, whatever the mutator makes of the seed by now."""
    about = json.loads((folder / "case.json").read_text())
    home = folder / "case"
    found = [path for path in home.rglob("*") if not path.is_symlink() and path.is_file()]
    return Case(
        kind=about["kind"],
        seed=about["seed"],
        files={path.relative_to(home).as_posix(): path.read_bytes() for path in found},
        links={path.name: str(path.readlink()) for path in home.iterdir() if path.is_symlink()},
        steps=[tuple(step) for step in about["steps"]],
        environment=about["environment"],
        encoding=about["encoding"],
    )


def main() -> int:
    """Shrinks one case and prints what is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a kept case")
    parser.add_argument("--tries", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which a command hangs")
    options = parser.parse_args()
    case = kept_case(options.folder)
    with Runner(seconds=options.seconds) as runner:
        content, reason = shrunk(case, runner, options.tries)
    path = options.folder / f"shrunk{Path(SHRUNK[case.kind][0]).suffix}"
    path.write_bytes(content)
    print(f"{reason or 'no failure'}\n{case.steps}\n{path}: {len(content)} bytes")
    if case.kind == "graphs":
        try:
            print(onnx.printer.to_text(onnx.ModelProto.FromString(content)))
        except (DecodeError, ValueError, RuntimeError) as error:
            print(f"{content!r}: {error}")
    return 0 if reason else 1


if __name__ == "__main__":
    sys.exit(main())
