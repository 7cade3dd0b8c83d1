"""Baselines of a gate, and findings ignored in code."""

from __future__ import annotations

import ast
import difflib
import io
import math
import os
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from analyzer.checks.device_answers import (
    PLANS,
    bytes_moved,
    forced_operators,
    operator_label,
    target_plan,
    time_in_plan,
)
from analyzer.checks.placement import copies_inside
from analyzer.checks.registry import Diagnostic, Subject, require_known, rule
from analyzer.errors import RecordError, UsageError
from analyzer.figures import KnownLatency
from analyzer.process import printed_by
from analyzer.record.analysis import Analysis, OperatorResult, Where
from analyzer.record.baseline import Baseline, BaselineModule, baseline_to_json
from analyzer.record.encoding import load_baseline, load_report
from analyzer.text import first_few, listed
from analyzer.units import byte_count, count, flop_count, seconds

_COMMENT = re.compile(r"#\s*analyze:\s*ignore\b(?:\[([^\]]*)\])?:?\s*([^#]*)")
# A source file is no larger; what is generated may be.
_MOST_BYTES = 2**22

Hunks = tuple[tuple[Where, ...], ...]


@dataclass(frozen=True, slots=True)
class Comment:
    """An ignore comment with its line, the codes that it names, and why."""

    where: Where
    codes: tuple[str, ...]
    reason: str

    def covers(self, code: str) -> str:
        """Return the code, or the beginning of one, by which the comment names a rule; else nothing."""
        return next((one for one in self.codes if one and code.startswith(one)), "")


def comments_on(lines: Iterable[Where | None]) -> dict[tuple[str, int], Comment]:
    """Return the ignore comments on source lines, by file and line."""
    comments = {}
    for where in lines:
        match = _COMMENT.search(where.code) if where is not None else None
        if where is not None and match:
            codes = tuple(code.strip().upper() for code in (match[1] or "").split(","))
            comments[where.file, where.line] = Comment(where, tuple(filter(None, codes)), match[2].strip())
    return comments


def commented_lines(root: Path, files: Iterable[str], operators: Iterable[OperatorResult]) -> Iterator[Where]:
    """Yield the lines of source files that hold an ignore comment; no file outside ``root`` is read.

    A class or function without an operator of this model is left out: the comment may serve another model.
    """
    sources = {(op.source.file, op.source.line) for op in operators if op.source is not None}
    for file in files:
        path = Path(os.path.realpath(root / file))
        try:
            if path.suffix != ".py" or not path.is_relative_to(root) or path.stat().st_size > _MOST_BYTES:
                continue
            executed = {line for name, line in sources if name == file}
            # Where no operator has a source line, none tells what is executed.
            source = path.read_bytes()
            unused = _scopes_without(executed, source) if sources else []
            for token in tokenize.tokenize(io.BytesIO(source).readline):
                is_ignore = token.type == tokenize.COMMENT and _COMMENT.search(token.string)
                if is_ignore and not any(token.start[0] in lines for lines in unused):
                    yield Where(file=file, line=token.start[0], code=token.line.strip())
        except (OSError, SyntaxError, ValueError, tokenize.TokenError):
            continue  # of code that cannot be read the loader says why


def _scopes_without(executed: set[int], source: bytes) -> list[range]:
    """Return the lines of each class and function in which no executed line stands."""
    # These two run with their class: an operator of torch.nn stands on the line that makes its module.
    nodes = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name not in ("__init__", "forward")
    ]
    spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in nodes]
    return [span for span in spans if executed.isdisjoint(span)]


def faults_of(comment: Comment, used: Iterable[str]) -> Iterator[Diagnostic]:
    """Yield what is wrong with a comment: no code or an unknown one, no reason, or nothing to set aside."""
    usual, wrong = "write `# analyze: ignore[A101] reason`, or remove the comment", []
    if not comment.codes:
        wrong.append(("the ignore comment names no code", usual))
    elif not comment.reason:
        codes = ",".join(comment.codes)
        wrong.append((f"the comment that ignores {codes} gives no reason", "write it behind the bracket"))
    for code in comment.codes:
        try:
            require_known(code, f"# analyze: ignore[{code}]")
            if code not in used:
                fix = f"remove {code} from the comment"
                wrong.append((f"the comment ignores {code}, which nothing on this line has", fix))
        except UsageError as error:
            wrong.append((error.message, error.hint or usual))
    yield from (Diagnostic(message=message, fix=fix, source=comment.where) for message, fix in wrong)


def changed_lines(root: Path, files: Iterable[str], baseline: Path) -> Hunks:
    """Return the lines of code that differ from the commit that last wrote the baseline, by hunk, from Git.

    Without Git, a commit of the baseline, or its history, there are none.
    """
    commit = _git(root, "rev-list", "-1", "HEAD", "--", os.path.realpath(baseline)).strip()
    hunks: list[tuple[Where, ...]] = []
    # Files are compared here: Git would start the filters that a repository's configuration names.
    for file in files if commit else ():
        path = root / file
        if not file.endswith(".py") or ".." in Path(file).parts or os.path.isabs(file) or not path.is_file():
            continue
        before = _git(root, "show", "--no-textconv", f"{commit}:./{file}").splitlines()
        now = path.read_text(encoding="utf-8", errors="replace").splitlines()
        compared = difflib.SequenceMatcher(None, before, now, autojunk=False)
        for kind, _, _, first, end in compared.get_opcodes():
            lines = [(at + 1, now[at].strip()) for at in range(first, end) if kind != "equal"]
            code = [(at, line) for at, line in lines if line and not line.startswith("#")]
            hunks.append(tuple(Where(file=file, line=at, code=line) for at, line in code))
    return tuple(filter(None, hunks))


def _git(root: Path, *arguments: str) -> str:
    # What the repository's configuration would start at each look is left alone.
    return printed_by(
        "git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments, folder=root
    )


# The figures of a baseline, and how they are written.
_FIGURES: Mapping[str, tuple[str, Callable[..., str]]] = {
    **{f"{plan}_latency_s": (f"latency of the {words}", seconds) for plan, words in PLANS.items()},
    "bytes": ("bytes moved", byte_count),
    "flops": ("FLOPs", flop_count),
    "copies": ("copies inside the graph", count),
    "copied_bytes": ("bytes of these copies", byte_count),
    "cpu_operators": ("operators on the CPU", count),
    "peak_memory_bytes": ("peak memory", byte_count),
    "parameter_bytes": ("weights", byte_count),
}
# Options by which figures are another question's, batch and devices apart. An opset is none: what a newer one
# does is what a baseline notices.
_DECIDING = (
    *("input", "input-data", "arg", "script-arg", "state", "no-state", "precision"),
    *("prompt", "output-tokens", "gpus", "weights", "kv"),
)
# Every file stays below 20 kB: modules of larger models are joined with those around them.
_MOST_BASELINE_BYTES = 18_000
# Of a sum of floats another order of summing changes the last digit.
_ROUNDED = 1e-6


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that moved since the baseline, by its key there."""

    key: str
    before: float
    after: float

    @property
    def cells(self) -> tuple[str, str, str]:
        """Its cells, before and after."""
        what, text = _FIGURES[self.key]
        return what, text(self.before), text(self.after)

    @property
    def clause(self) -> str:
        """The change as part of a sentence."""
        what, before, after = self.cells
        return f"the {what} {'rose' if self.after > self.before else 'fell'} from {before} to {after}"


def baseline_of(analysis: Analysis, depth: int | None = None) -> Baseline:
    """Return the baseline of an analysis, its modules told apart by ``depth`` names, or by as many as fit.

    With a depth of -1 it has none.
    """
    model, gpu, totals = analysis.model, analysis.devices.gpu, analysis.totals
    given = analysis.invocation.options if analysis.invocation is not None else {}
    options = [" ".join((f"--{name}", *given[name])) for name in _DECIDING if name in given]
    target, copies = analysis.plan(target_plan(analysis)), copies_inside(analysis)
    figures = {
        **{f"{plan.name}_latency_s": plan.latency_s for plan in analysis.plans},
        "bytes": totals.bytes_read + totals.bytes_written,
        "flops": totals.flops,
        "copies": len(copies),
        "copied_bytes": sum(copy.bytes for copy in copies),
        "cpu_operators": len(forced_operators(analysis)),
        "peak_memory_bytes": totals.peak_memory_bytes,
        "parameter_bytes": model.parameter_bytes,
    }
    baseline = Baseline(
        tool=analysis.tool,
        onnxruntime=analysis.onnxruntime,
        compares={
            "model": model.name,
            "batch": str(model.batch),
            "mode": "training" if model.training else "inference",
            "CPU": analysis.devices.cpu.slug,
            "GPU": "none" if gpu is None else gpu.slug,
            "set of options": " ".join(options) or "none",
        },
        latency=KnownLatency(latency_s=0.0, low_s=0.0, high_s=0.0)
        if target is None
        else KnownLatency(
            latency_s=target.latency_s, low_s=target.low_s, high_s=target.high_s, origin=target.origin
        ),
        figures={key: value for key, value in figures.items() if value is not None},
        depth=0,
        modules=(),
    )
    deepest = max((op.module.count(".") + 1 for op in analysis.operators if op.module), default=0)
    for names in [depth] if depth is not None else range(deepest, -1, -1):
        baseline = replace(baseline, depth=names, modules=tuple(_modules(analysis, names)))
        if depth is None and len(baseline_to_json(baseline).encode()) <= _MOST_BASELINE_BYTES:
            break
    return baseline


def read_baseline(path: Path) -> Baseline | None:
    """Read a baseline, or make it of a report of the model; None where there is no such file.

    Raises:
        RecordError: The file is neither.
    """
    if not path.exists():
        return None
    with suppress(RecordError):
        return baseline_of(load_report(path))
    return load_baseline(path)


def _modules(analysis: Analysis, depth: int) -> Iterator[BaselineModule]:
    plan, forced = target_plan(analysis), {op.index for op in forced_operators(analysis)}
    modules: dict[str, list[OperatorResult]] = {}
    for op in analysis.operators if depth >= 0 else ():
        modules.setdefault(_module(op, depth), []).append(op)
    for name, operators in modules.items():
        yield BaselineModule(
            module=name,
            flops=sum(op.flops or 0 for op in operators),
            bytes=bytes_moved(operators) or 0,
            # It says which rose, and decides nothing.
            time_s=float(f"{sum(time_in_plan(op, plan) or 0.0 for op in operators):.4g}"),
            on_cpu=tuple(sorted({op.op_type for op in operators if op.index in forced})),
        )


def _module(operator: OperatorResult, depth: int) -> str:
    return ".".join(operator.module.split(".")[:depth]) if operator.module else f"({operator.op_type})"


def changes(baseline: Baseline, now: Baseline) -> tuple[Change, ...]:
    """Return the figures that moved since the baseline."""
    before, after = baseline.figures, now.figures
    both = [Change(key, before[key], after[key]) for key in _FIGURES if key in before and key in after]
    return tuple(one for one in both if not math.isclose(one.before, one.after, rel_tol=_ROUNDED))


def require_comparable(baseline: Baseline, analysis: Analysis) -> None:
    """Refuse a baseline of another model, batch, mode, device or set of options.

    The opset may differ, since a change of it is what a baseline is there to notice.

    Raises:
        UsageError: They are not the same.
    """
    for what, now in baseline_of(analysis, -1).compares.items():
        before = baseline.compares.get(what, "none")
        if before != now:
            raise UsageError(
                f"the baseline is of another {what}: {before}, and this check is of {now}",
                hint="choose the right baseline, or write it anew with --update-baseline",
            )


@rule("A611", "above-baseline", "error")
def above_baseline(subject: Subject) -> Iterator[Diagnostic]:
    """A figure rose above the baseline's.

    What:
        The latency of the target device's plan, the bytes moved, the FLOPs, the weights, or the copies inside
        the graph rose above the baseline by more than `tolerance`. What rose for one cause is one finding, at
        the operator that rose most, on the changed line where Git knows it. Where an operator moved to the
        CPU, A101 says it. Two predictions for the same devices share their error, so any rise is certain; a
        measured one is certain where the two intervals are apart.

    Why:
        A change of the model made every inference do more, or take longer.

    Fix:
        The message names what rose most. If the rise is meant: `analyze check ... --update-baseline`.

    Example:
        [tool.analyzer.check]
        baseline = "baselines/"
        tolerance = "2%"
    """
    baseline, analysis = subject.baseline, subject.analysis
    if baseline is None or baseline.writer != (now := baseline_of(analysis, -1)).writer:
        return
    most = 1 + max(subject.settings.tolerance, _ROUNDED)
    rises = {one.key: one for one in changes(baseline, now) if one.after > one.before * most}
    time = [rises[key] for key in (f"{target_plan(analysis)}_latency_s",) if key in rises]
    work = [rises[key] for key in ("bytes", "flops", "parameter_bytes") if key in rises]
    # More copies move more bytes: the bytes alone are of interest where the copies are as many.
    copies = [rises[key] for key in ("copies", "copied_bytes") if key in rises][:1]
    moved_to_cpu, latencies = _moved_to_cpu(baseline, analysis), (baseline.latency, now.latency)
    if work:
        # More work takes longer; copies that came with it have a cause of their own. Weights are of no module.
        ratios = {
            key: rises[key].after / max(rises[key].before, 1) for key in ("bytes", "flops") if key in rises
        }
        key = max(ratios, key=ratios.__getitem__, default="bytes")
        yield _finding(subject, latencies, [*time, *work], _risen(baseline, analysis, key))
        time = []
    if time or copies:
        operators = moved_to_cpu or _risen(baseline, analysis, "time_s")
        yield _finding(subject, latencies, [*time, *copies], operators)


def _finding(
    subject: Subject,
    latencies: tuple[KnownLatency, KnownLatency],
    rises: Sequence[Change],
    operators: Sequence[OperatorResult],
) -> Diagnostic:
    """Return the finding of figures that rose together, by the operators that rose, most first."""
    costs = [one for one in rises if one.key != "parameter_bytes"]  # weights cost an inference nothing
    sizes = {one.key.rpartition("_")[2]: one.after - one.before for one in reversed(costs)}
    before, now = latencies
    by = [operator_label(op) for op in {op.module or op.name: op for op in reversed(operators)}.values()]
    # The operator on a changed line, else the first; with the changed line where there is but one change.
    changed = {(where.file, where.line) for hunk in subject.changed for where in hunk}
    on_it = [op for op in operators if op.source and (op.source.file, op.source.line) in changed]
    only = subject.changed[0][0] if len(subject.changed) == 1 and not on_it else None
    return Diagnostic(
        operator=next(iter((*on_it, *operators)), None),
        source=only,
        message=listed(one.clause for one in rises) + (f"; most by {first_few(reversed(by))}" if by else ""),
        fix=f"undo it, or write the baseline anew if it is meant: {subject.renew}",
        seconds=sizes.get("s"),
        bytes=int(sizes["bytes"]) if "bytes" in sizes else None,
        # Equal devices and equal model of them: the error of a prediction is a factor that both share.
        certain="s" not in sizes
        or len(rises) > 1
        or {before.origin, now.origin} == {"predicted"}
        or now.low_s > before.high_s,
    )


def _moved_to_cpu(baseline: Baseline, analysis: Analysis) -> list[OperatorResult]:
    before = {module.module: module.on_cpu for module in baseline.modules}
    forced = forced_operators(analysis)
    return [op for op in forced if op.op_type not in before.get(_module(op, baseline.depth), ())]


def _risen(baseline: Baseline, analysis: Analysis, key: str) -> list[OperatorResult]:
    """Return the operators of modules whose figure rose: modules by their rise, in each the largest first."""
    plan = target_plan(analysis)
    figures: Mapping[str, Callable[[OperatorResult], float | None]] = {
        "flops": lambda op: op.flops,
        "bytes": lambda op: bytes_moved([op]),
        "time_s": lambda op: time_in_plan(op, plan),
    }
    before = {module.module: getattr(module, key) for module in baseline.modules}
    rises = {}
    for module in _modules(analysis, baseline.depth):
        old = before.get(module.module, 0)
        if getattr(module, key) - old > 1e-3 * old:  # times are rounded
            rises[module.module] = getattr(module, key) - old
    risen = [op for op in analysis.operators if _module(op, baseline.depth) in rises]
    return sorted(
        risen, key=lambda op: (-rises[_module(op, baseline.depth)], op.module, -(figures[key](op) or 0))
    )


@rule("A613", "below-baseline", "error")
def below_baseline(subject: Subject) -> Iterator[Diagnostic]:
    """A figure fell below the baseline's.

    What:
        With `fail-on-better = true` or `--fail-on-better`: the latency of the target device's plan, the bytes
        moved, the FLOPs, the weights, or the copies inside the graph fell below the baseline by more than
        `tolerance`.

    Why:
        A model that shrank by mistake, by a layer that a change or an export lost, looks like a gain.

    Fix:
        Look for what is missing. If the gain is meant: `analyze check ... --update-baseline`.

    Example:
        [tool.analyzer.check]
        baseline = "baselines/"
        fail-on-better = true
    """
    baseline, settings = subject.baseline, subject.settings
    if baseline is None or not settings.fail_on_better:
        return
    now, least = baseline_of(subject.analysis, -1), 1 - max(settings.tolerance, _ROUNDED)
    latency = f"{target_plan(subject.analysis)}_latency_s"
    compared = (latency, "bytes", "flops", "parameter_bytes", "copies", "copied_bytes")
    falls = [one for one in changes(baseline, now) if one.key in compared and one.after < one.before * least]
    if falls and baseline.writer == now.writer:
        yield Diagnostic(
            message=listed(one.clause for one in falls),
            fix=f"restore what is missing, or write the baseline anew if it is meant: {subject.renew}",
            certain=len(falls) > 1
            or falls[0].key != latency
            or {baseline.latency.origin, now.latency.origin} == {"predicted"}
            or now.latency.high_s < baseline.latency.low_s,
        )


@rule("A612", "not-compared", "note")
def not_compared(subject: Subject) -> Iterator[Diagnostic]:
    """There is no baseline yet, or another version wrote it.

    What:
        `baseline` names a file that is not there, or a folder without a file for this model. Or figures moved,
        and the baseline is of another version of this program or of ONNX Runtime.

    Why:
        Without a baseline nothing can rise. A new version counts, places or predicts better: a figure may move
        though the model stayed as it is, so nothing fails.

    Fix:
        Write the baseline with the command that the finding gives, and commit it.

    Example:
        ONNX Runtime 1.32 has a CUDA kernel that 1.31 lacks: copies become fewer, the latency falls.
    """
    path, baseline = subject.settings.baseline, subject.baseline
    if baseline is None and path is not None:
        yield Diagnostic(
            message=f"there is no baseline {path} yet, so nothing is compared",
            fix=f"write it, and commit it: {subject.renew}",
        )
    if baseline is None:
        return
    figures = changes(baseline, now := baseline_of(subject.analysis, -1))
    names = [
        f"{name} {old} (now {now.writer[name]})"
        for name, old in baseline.writer.items()
        if old != now.writer[name]
    ]
    if names and figures:
        yield Diagnostic(
            message=f"{listed(one.clause for one in figures)} since the baseline, which is of {listed(names)}",
            fix=f"write the baseline anew: {subject.renew}",
        )
