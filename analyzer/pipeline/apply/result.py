"""An applied plan: what ``apply.json`` says, its folder, and what the terminal says of it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from analyzer.errors import ModelError, OutputError
from analyzer.figures import KnownLatency
from analyzer.measurement.output_agreement import LEAST_SQNR_DB
from analyzer.options import PlanName
from analyzer.ort.placement import ReleasePlacement
from analyzer.pipeline.apply.request import ORIGINAL_RECORD, RESULT, OpsetCost
from analyzer.run_folder import folder_aside, is_about_writing, umask
from analyzer.text import first_few, plural
from analyzer.units import seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The results of checks: true, false, or None with a reason.

    Attributes:
        placement: Whether the session's own record has every node where the plan has it, and as many copies.
        numbers: Whether the outputs agree with those of the unannotated model on the CPU.
        time: Whether a measured run lies within the plan's interval.
        reasons: Why one was not checked, or what is wrong, by its name.
    """

    placement: bool | None = None
    numbers: bool | None = None
    time: bool | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedFix:
    """A fix that was applied.

    Attributes:
        name: Of ``--fix``, or the precision.
        what: What was done, in a sentence.
        latency_before_s, low_before_s, high_before_s: Of the model before it, predicted: a 90 % interval.
        latency_after_s, low_after_s, high_after_s: Of what it made.
        blocked: Operators that were left in their type: ``name``, ``op_type`` and ``why``.
        numbers: How the outputs compare with those of the original model on the CPU.
    """

    name: str
    what: str
    latency_before_s: float
    low_before_s: float
    high_before_s: float
    latency_after_s: float
    low_after_s: float
    high_after_s: float
    blocked: tuple[Mapping[str, str], ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Applied(KnownLatency):
    """A plan that was applied.

    Attributes:
        folder: Where it was written.
        plan: Which plan.
        model, batch, opset, precision: What was applied.
        where: The devices in words.
        cpu, gpu: Slugs of the devices that it was planned for; no GPU for a plan of the CPU alone.
        nodes: ``CUDA`` or ``CPU`` by node name, as the session's assignment record names them.
        copies: Memcpy nodes of the optimised graph.
        annotated: How many nodes carry the annotation.
        verified: What was checked.
        onnxruntime: The release whose rules placed it.
        state: Output by the input whose next value it is, where both have one shape.
        differences: The largest difference of each output, and what is allowed.
        tolerances: By output, what it may be off by where the plan runs: a share of the largest magnitude that
            is right, and an absolute difference; without those that NumPy cannot hold or the model draws.
        bits: By input of a type that NumPy lacks, ONNX's number of it.
        measured_s: The median of a run, host to host, or with the state on the device; None without a GPU.
        notes: What to know, in sentences.
        fixes: What was done to the model before.
        opsets: What the model costs at each opset, the one that was chosen first; empty where it was named.
        releases: How releases of ONNX Runtime place it at each of them.
    """

    plan: PlanName
    model: str
    batch: int | None
    opset: int
    precision: str
    cpu: str
    gpu: str | None
    onnxruntime: str
    measured_s: float | None = None
    verified: Verified = Verified()
    differences: tuple[Mapping[str, Any], ...] = ()
    tolerances: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    bits: Mapping[str, int] = field(default_factory=dict)
    copies: int
    annotated: int
    state: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fixes: tuple[AppliedFix, ...] = ()
    opsets: tuple[OpsetCost, ...] = ()
    releases: tuple[ReleasePlacement, ...] = ()
    nodes: Mapping[str, str]
    # Where it is, and what its devices are called, is not in the file.
    folder: Path
    where: str

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``apply.json``: the fields in their order, without the last two."""
        values: dict[str, Any] = msgspec.to_builtins(self, enc_hook=os.fspath)
        return {name: value for name, value in values.items() if name not in ("folder", "where")}


_WORDS = {True: "verified", False: "NOT as planned", None: "not verified"}


def summary(applied: Applied) -> Iterator[str]:
    """Yield the lines, without the folder's name."""
    devices = Counter(applied.nodes.values())
    where = ", ".join(
        f"{count:,} on the {'GPU' if device == 'CUDA' else device}" for device, count in sorted(devices.items())
    )
    nodes = plural(len(applied.nodes), "node") + (f" ({where})" if where else "")
    batch = f" at batch {applied.batch}" if applied.batch is not None else ""
    yield (
        f"Plan {applied.plan}{batch}, opset {applied.opset}: {nodes}, "
        f"{plural(applied.copies, 'copy')} inside the graph, {plural(applied.annotated, 'annotation')}."
    )
    for fix in applied.fixes:
        yield (
            f"fix {fix.name}: {fix.what} {seconds(fix.latency_after_s)} predicted "
            f"({seconds(fix.low_after_s)} to {seconds(fix.high_after_s)}) where it was "
            f"{seconds(fix.latency_before_s)}; {_closeness(fix)}"
        )
        for why in dict.fromkeys(row["why"] for row in fix.blocked):
            names = [f"{row['name']} ({row['op_type']})" for row in fix.blocked if row["why"] == why]
            yield f"fix {fix.name}: in float32 stay {first_few(names)}: {why}."
    took = applied.latency
    yield (
        f"Latency {seconds(took.value)} ({seconds(took.low)} to {seconds(took.high)}), "
        f"predicted for {applied.where}."
    )
    verified = applied.verified
    for name in ("numbers", "placement", "time"):
        value, detail = getattr(verified, name), verified.reasons.get(name, "") or _detail(name, applied)
        yield f"{name}: {_WORDS[value]}{'. ' if detail else ''}{detail}"
    for cost in sorted(applied.opsets, key=lambda cost: cost.opset):
        chosen = " (chosen)" if cost is applied.opsets[0] else ""
        figure = "not to be had" if cost.latency is None else seconds(cost.latency.value)
        yield f"opset {cost.opset}{chosen}: {figure}{'. ' if cost.why else ''}{cost.why}"
    # Releases that place the model otherwise at the chosen opset than the one that the session is for.
    rows = [row for row in applied.releases if row.opset == applied.opset]
    placed = {row.release: (row.without_kernel, row.copies, row.fails) for row in rows}
    own = placed.get(applied.onnxruntime)
    for release, (without, copies, fails) in placed.items():
        if own is not None and (without, copies, fails) != own:
            lost = f"{plural(without, 'operator')} without a CUDA kernel, {plural(copies, 'copy')}"
            yield f"ONNX Runtime {release}: {fails or lost}"
    for note in applied.notes:
        yield f"note: {note}"


def _closeness(fix: AppliedFix) -> str:
    """Return how near the outputs are to the original's."""
    rows = fix.numbers.get("outputs", ())
    noisy = [row["sqnr_db"] for row in rows if row.get("sqnr_db") is not None]
    if noisy:
        return f"outputs {min(noisy):.1f} dB above their noise, {LEAST_SQNR_DB:g} dB are needed."
    worst = max((row["max_rel_error"] or 0.0 for row in rows), default=0.0)
    if not worst:
        return "outputs bit for bit the original's on the CPU."
    return f"outputs within {worst:.1e} of the original's largest on the CPU."


def _detail(name: str, applied: Applied) -> str:
    if name == "numbers" and applied.differences:
        plain = "original model" if applied.fixes else "unannotated model"
        worst = max(applied.differences, key=lambda row: row["max_abs_error"] or 0.0)
        if not worst["max_abs_error"]:
            return f"Bit for bit the {plain}'s on the CPU."
        gap = f"{worst['max_abs_error']:.2g}"
        return f"{worst['output']} is off by {gap} at most from the {plain}'s on the CPU."
    if name == "time" and applied.measured_s is not None:
        return f"{seconds(applied.measured_s)} measured."
    return ""


# Whatever an apply.json names: no other file is ever taken away.
_OURS = re.compile(rf"{re.escape(ORIGINAL_RECORD)}|weights(-\d+)?\.bin")


@contextmanager
def folder_to_be(place: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces the place as a whole; nothing does where the block fails.

    A place that is there keeps its own files but those of the same names, and those that an earlier plan left
    and this one does not have.

    Raises:
        OutputError: It cannot be written.
        ModelError: A file of somebody else, such as the model's, cannot be read any more.
    """
    # A link's or a mount's folder may be of another file system than the one around it, or alone be writable.
    there = place.is_dir()
    around = place if there else place.parent
    try:
        around.mkdir(parents=True, exist_ok=True)
        with folder_aside(around) as aside:
            try:
                yield aside
            except OutputError as error:  # where another process wrote
                message = error.message.replace(str(aside), str(place))
                raise OutputError(message, hint=error.hint) from error
            except OSError as error:
                if is_about_writing(error, aside):
                    raise
                raise ModelError(f"{error.filename} cannot be read: {error.strerror or error}.") from error
            _own(aside)
            if there:
                _put(aside, place)
            else:
                aside.chmod(0o777 & ~umask())
                # At once: of two that write the same folder, one is told that it is no longer empty.
                os.rename(aside, place)
    except OSError as error:
        raise OutputError(
            f"{place} cannot be written: {error.strerror or error}.", hint="Name another folder with --output."
        ) from error


def _own(aside: Path) -> None:
    """Files that are nobody else's, and as readable as any that the user writes."""
    for path in sorted(aside.iterdir()):
        # A weights file that the user's model shares would change with it.
        if path.stat().st_nlink > 1:
            own = path.with_name(f"{path.name}.copy")
            shutil.copyfile(path, own)
            os.replace(own, path)
        os.chmod(path, 0o666 & ~umask())


def _put(aside: Path, place: Path) -> None:
    """All files of one folder into another, or none."""
    names = sorted(path.name for path in aside.iterdir())
    before = aside / "before"
    before.mkdir()
    try:
        for name in [*names, *(_left_over(place) - set(names))]:
            target = place / name
            if target.is_dir() and not target.is_symlink():
                raise OSError(errno.EISDIR, f"{name} is a folder")
            if os.path.lexists(target):
                os.replace(target, before / name)
            if name in names:
                os.replace(aside / name, target)
    except BaseException:
        for name in names:
            if not os.path.lexists(aside / name):
                (place / name).unlink(missing_ok=True)
        for path in before.iterdir():
            os.replace(path, place / path.name)
        raise


def _left_over(place: Path) -> set[str]:
    """Return an earlier plan's files that this one does not need: weights, the first model's record."""
    try:
        written = json.loads((place / RESULT).read_text(encoding="utf-8"))["files"]
        return {name for name in written if _OURS.fullmatch(name) and os.path.lexists(place / name)}
    except (OSError, ValueError, TypeError, LookupError):
        return set()


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file that people read, too."""
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
