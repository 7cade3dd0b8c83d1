"""Destinations of reports: names, folders, whole files or none, never over a foreign file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.errors import OutputError
from analyzer.record.formats import Format
from analyzer.run_folder import file_aside, umask

STANDARD_OUTPUT = "-"

# What is read of a file to tell whether it is ours: a mark stands at its beginning or at its end.
_BEGINNING, _END = 2**16, 2**12
# What nobody calls a folder.
_OF_FILES = frozenset(
    (
        ".html",
        ".htm",
        ".json",
        ".md",
        ".csv",
        ".xml",
        ".sarif",
        ".txt",
        ".pdf",
        ".png",
        ".svg",
        ".xlsx",
        ".docx",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One report to write: its format and its file.

    Attributes:
        format: What is written.
        path: Where to; None is standard output.
        chart: Of which chart it is a picture; empty for a whole report.
        optional: Whether it is left out where the record has no such chart.
    """

    format: Format
    path: Path | None
    chart: str = ""
    optional: bool = False


def targets(
    formats: Sequence[Format], output: str | None, stem: str, default: Path, charts: Sequence[str] = ()
) -> tuple[Target, ...]:
    """Return which report goes where.

    One format: OUTPUT is the file, ``-`` is standard output. Several, a trailing slash or an existing
    folder: OUTPUT is a folder that receives ``<stem><extension>``. A picture of each chart is as many files,
    ``<stem>-<chart><extension>``.

    Args:
        formats: What is written.
        output: What the user gave.
        stem: The report's name.
        default: The folder where nothing was given.
        charts: Whose pictures are drawn; of every chart that the record has where none is named.

    Raises:
        OutputError: Several files for standard output, or for what is named as one.
    """
    several = len(formats) > 1 or (formats[0].is_picture and len(charts) != 1)
    # The only chart, where the file's name need not say which it is.
    chart = charts[0] if formats[0].is_picture and not several else ""
    if output == STANDARD_OUTPUT:
        if len(formats) > 1:
            raise OutputError(
                "Several formats cannot share standard output.", hint="Give one --format with --output -."
            )
        if several:
            raise OutputError(
                "Several charts cannot share standard output.", hint="Give one --chart with --output -."
            )
        return (Target(format=formats[0], path=None, chart=chart),)
    if output and several:
        _require_no_file(output, formats)
    folder = Path(output) if output else default
    # A trailing slash is gone once it is a Path: it is looked for in the text.
    if output and not several and not output.endswith(("/", os.sep)) and not os.path.isdir(folder):
        return (Target(format=formats[0], path=folder, chart=chart),)
    return tuple(
        target
        for known in formats
        for target in _in_folder(known, folder / stem, charts if known.is_picture else ())
    )


def _in_folder(form: Format, path: Path, charts: Sequence[str]) -> Iterator[Target]:
    """Yield a report's files by the path without the extension."""
    if not form.is_picture:
        yield Target(format=form, path=path.with_name(f"{path.name}{form.extension}"))
        return
    for name in charts or form.charts:
        place = path.with_name(f"{path.name}-{name}{form.extension}")
        yield Target(format=form, path=place, chart=name, optional=not charts)


def contents(subject: Any, reports: Sequence[Target]) -> dict[Target, bytes]:
    """Return every report rendered, before any is written; optional pictures of charts not there left out.

    Args:
        subject: What the formats write down.
        reports: What is to be written.

    Raises:
        UsageError: There is no such chart.
    """
    drawn = {
        form.name: form.draw(subject, [one.chart for one in reports if one.format is form and not one.optional])
        for form in dict.fromkeys(report.format for report in reports if report.format.is_picture)
    }
    return {
        report: drawn[report.format.name][report.chart]
        if report.chart
        else report.format.write(subject).encode()
        for report in reports
        if not report.optional or report.chart in drawn[report.format.name]
    }


def _require_no_file(output: str, formats: Sequence[Format]) -> None:
    """Refuse to make a folder called ``report.pdf``, which nobody meant."""
    suffix = os.path.splitext(output)[1].lower()
    if suffix in _OF_FILES and not os.path.isdir(output):
        names = [known.name for known in formats]
        one = next((known for known in formats if known.extension.endswith(suffix)), formats[0])
        if one.is_picture and len(formats) == 1:
            raise OutputError(
                f"{output} names one file, and each chart is one.",
                hint=f"One of them: --chart roofline --output {output}. A folder's name ends in a slash.",
            )
        name = f"{os.path.splitext(output)[0]}{one.extension}"
        chart = " --chart roofline" if one.is_picture else ""
        raise OutputError(
            f"{output} names one file, and {' and '.join(names)} are written.",
            hint=f"One of them: --format {one.name}{chart} --output {name}. A folder's name ends in a slash.",
        )


def check_writable(reports: Iterable[Target], *, force: bool = False) -> None:
    """Fail early where a report could not be written, before anything is measured.

    Args:
        reports: What is to be written.
        force: Whether a file that is no report of ours may be replaced.

    Raises:
        OutputError: A folder cannot be made or written, or a file is not ours.
    """
    for report in reports:
        if report.path is not None:
            try:
                _check_folder(report.path)
                _place_of(report.path, report.format, force=force)
            except (OSError, ValueError) as error:  # a name that is too long, or one with a null byte
                raise _cannot_be_written(error, report.path) from error


def _check_folder(path: Path) -> None:
    folder = path.parent
    if path.is_dir():
        raise OutputError(f"{path} is a folder.", hint="End it with a slash to have the report put into it.")
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise OutputError(f"{path} cannot be written.", hint="Choose another --output.")
        return
    # The nearest folder that exists: the rest is made when it is written.
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise OutputError(f"{path} cannot be written: {folder} is not a folder.")
    if not os.access(folder, os.W_OK):
        raise OutputError(
            f"{path} cannot be written: no permission in {folder}.", hint="Choose another --output."
        )


def is_stream(path: Path) -> bool:
    """Return whether this is a device, pipe or socket, such as ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def is_ours(path: Path, form: Format) -> bool:
    """Return whether a file may be replaced: an empty one, or one that bears the mark of the format."""
    try:
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING)
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - _END, 0))
            end = file.read(_END)
    except OSError:
        return False  # what cannot be read may be anything
    return not beginning or any(
        form.mark.search(part.decode("utf-8", "replace").replace("\r\n", "\n")) for part in (beginning, end)
    )


def write_all(contents: Mapping[Target, str | bytes], *, force: bool = False) -> None:
    """Write files whole: each aside, beside its place, all moved at the end; standard output is left out.

    A link is followed. A device or pipe is written to, never replaced.

    Args:
        contents: What each report holds.
        force: Whether a file that is no report of ours is replaced.

    Raises:
        OutputError: One of them cannot be written; none is moved then.
    """
    streams: dict[Path, bytes] = {}
    files: dict[Path, Path] = {}
    at_work: Path | None = None  # an error of a full disk names no file
    try:
        with ExitStack() as stack:
            for report, held in contents.items():
                if report.path is None:
                    continue
                # "\n" on every system: the same record gives the same bytes.
                content = held.encode("utf-8") if isinstance(held, str) else held
                if is_stream(report.path):
                    streams[report.path] = content
                    continue
                at_work = place = _place_of(report.path, report.format, force=force)
                place.parent.mkdir(parents=True, exist_ok=True)
                files[place] = stack.enter_context(file_aside(place.parent, content))
            # What has gone into a pipe cannot be taken back: after all files were made, before any is moved.
            for path, content in streams.items():
                at_work = path
                with path.open("wb") as stream:
                    stream.write(content)
            # A file that is being written is its owner's alone; a report gets the rights of any other new file.
            mode = 0o666 & ~umask()
            for place, whole in files.items():
                at_work = place
                whole.chmod(mode)
                os.replace(whole, place)
    except (OSError, ValueError) as error:
        raise _cannot_be_written(error, at_work) from error


def _place_of(path: Path, form: Format, *, force: bool) -> Path:
    """Return the file that a report goes to, links followed.

    Raises:
        OutputError: Something stands there that is not ours.
        OSError: Links lead in a circle.
    """
    # The file itself: moving one onto a link would put it in the link's own place.
    place = Path(os.path.realpath(path))
    if is_stream(path) or force:
        return place
    if place.is_symlink():
        raise OutputError(f"{path} cannot be written: its links lead in a circle.")
    if place.exists():
        if not is_ours(place, form):
            named = f"{path}" if place == Path(os.path.abspath(path)) else f"{path}, which is {place},"
            raise OutputError(
                f"{named} is no {form.name} report of this program.",
                hint="Choose another --output, or replace it with --force.",
            )
    elif path.is_symlink() and place.parent != Path(os.path.realpath(path.parent)):
        raise OutputError(
            f"{path} is a link to {place}, which does not exist.",
            hint="Give that path itself, or write through the link with --force.",
        )
    return place


def _cannot_be_written(error: OSError | ValueError, path: Path | None = None) -> OutputError:
    name = getattr(error, "filename", None) or path or "The report"
    return OutputError(
        f"{name} cannot be written: {getattr(error, 'strerror', None) or error}.",
        hint="Choose another --output.",
    )
