"""Comments in a model's code: ``# analyze: ignore[A101] reason`` sets findings on its line aside."""

from __future__ import annotations

import ast
import difflib
import io
import os
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from analyzer.checks.registry import Diagnostic, require_known
from analyzer.errors import UsageError
from analyzer.process import printed_by
from analyzer.record.analysis import OperatorResult, Where

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
            unused = _scopes_without(executed, path) if sources else []
            for token in tokenize.tokenize(io.BytesIO(path.read_bytes()).readline):
                is_ignore = token.type == tokenize.COMMENT and _COMMENT.search(token.string)
                if is_ignore and not any(token.start[0] in lines for lines in unused):
                    yield Where(file=file, line=token.start[0], code=token.line.strip())
        except (OSError, SyntaxError, ValueError, tokenize.TokenError):
            continue  # of code that cannot be read the loader says why


def _scopes_without(executed: set[int], path: Path) -> list[range]:
    """Return the lines of each class and function in which no executed line stands."""
    # These two run with their class: an operator of torch.nn stands on the line that makes its module.
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_bytes()))
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
