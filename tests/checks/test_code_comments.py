"""Comments in a model's code that set findings aside, and what Git knows of its lines."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checks_factory import stem

from analyzer.checks import judge
from analyzer.checks.baseline import changed_lines, commented_lines
from analyzer.record.analysis import Analysis, Where


def with_line(code: str) -> Analysis:
    """The stem whose pooling, without a CUDA kernel, stands on this line."""
    toy = stem(23)
    pool = replace(toy.operators[2], source=Where(file="models/toy.py", line=57, code=code))
    return replace(toy, operators=(*toy.operators[:2], pool, toy.operators[3]))


def judged(comment: str, **more: Any) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Codes of findings, ignored ones with their reasons, and what is said of comments."""
    judgement = judge(with_line(f"x = self.maxpool(x)  {comment}"), **more)
    return (
        [one.code for one in judgement.findings if one.code != "A706"],
        [(one.code, one.reason) for one in judgement.ignored],
        [one.message for one in judgement.findings if one.code == "A706"],
    )


@pytest.mark.parametrize("codes", ["A101", "a101", "A1", "A205, A101"])
def test_a_comment_on_an_operators_line_sets_its_finding_aside_with_its_reason(codes: str) -> None:
    found, ignored, _ = judged(f"# analyze: ignore[{codes}] the server has opset 21  # noqa")
    assert (found, ignored) == ([], [("A101", "the server has opset 21")])


def test_a_comment_for_another_code_sets_nothing_aside_and_that_is_said() -> None:
    found, ignored, said = judged("# analyze: ignore[A501] why not")
    assert (found, ignored) == (["A101"], [])
    assert said == ["the comment ignores A501, which nothing on this line has"]


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# analyze: ignore[A101]", "the comment that ignores A101 gives no reason"),
        ("# analyze: ignore all of it", "the ignore comment names no code"),
        ("# analyze: ignore[] all of it", "the ignore comment names no code"),
        ("# analyze: ignore[A109] known", "# analyze: ignore[A109]: there is no rule 'A109'"),
    ],
)
def test_what_is_wrong_with_a_comment_is_a_warning_on_its_line(comment: str, message: str) -> None:
    judgement = judge(with_line(f"x = self.maxpool(x)  {comment}"))
    (warning,) = (one for one in judgement.findings if one.code == "A706")
    assert (warning.severity, warning.message) == ("warning", message)
    assert warning.source is not None
    assert (warning.source.file, warning.source.line) == ("models/toy.py", 57)


def test_an_unknown_code_in_a_comment_is_answered_with_the_nearest() -> None:
    judgement = judge(with_line("x = self.maxpool(x)  # analyze: ignore[A1O1] known"))
    (warning,) = (one for one in judgement.findings if one.code == "A706")
    assert warning.fix == "Did you mean A101?"


def test_comments_on_lines_without_an_operator_are_read_from_the_files(tmp_path: Path) -> None:
    lines = ('text = "# analyze: ignore[A101] no comment"', "x = f(", "    y)  # analyze: ignore[A101] z")
    (tmp_path / "net.py").write_text("\n".join(lines))
    commented = list(commented_lines(tmp_path, ["net.py", "gone.py", "../net.py"], []))
    assert [(one.file, one.line) for one in commented] == [("net.py", 3)]
    _, _, said = judged("", commented=commented)
    assert said == ["the comment ignores A101, which nothing on this line has"]


def test_a_comment_is_judged_only_in_a_class_or_function_that_the_model_executes(tmp_path: Path) -> None:
    comment = "  # analyze: ignore[A101] small\n"
    (tmp_path / "net.py").write_text(
        f"limit = 3{comment}"
        "class Checked:\n"
        f"    def __init__(self):{comment}"
        "        self.pool = Pool()\n"
        f"    def unused(self):{comment}"
        "        return 1\n"
        "class Other:\n"
        f"    def forward(self, x):{comment}"
        "        return x\n"
        f"def helper(x):{comment}"
        "    return x\n"
    )

    def judged_lines(*executed: int) -> list[int]:
        sources = [Where(file="net.py", line=line, code="") for line in executed]
        operators = [replace(stem(23).operators[2], source=source) for source in sources]
        return [one.line for one in commented_lines(tmp_path, ["net.py"], operators)]

    assert judged_lines(4) == [1, 3]
    assert judged_lines(9, 11) == [1, 8, 10]
    assert judged_lines() == [1, 3, 5, 8, 10]  # no operator tells what is executed


def test_git_tells_the_lines_that_changed_since_the_baseline_was_committed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    net, baseline = tmp_path / "net.py", tmp_path / "base.json"
    net.write_text("a = 1\nb = 2\nc = 3\n")
    assert changed_lines(tmp_path, ["net.py"], baseline) == ()  # no repository
    git("init")
    git("add", "net.py")
    git("commit", "-m", "model")
    assert changed_lines(tmp_path, ["net.py"], baseline) == ()  # no commit of the baseline
    baseline.write_text("{}")
    git("add", "base.json")
    git("commit", "-m", "baseline")
    net.write_text("a = 1\nb = 20\n# a comment\nc = 3\nd = 4\n")
    git("commit", "-am", "change")
    net.write_text("a = 1\nb = 20\n# a comment\nc = 3\nd = 5\n")
    hunks = changed_lines(tmp_path, ["net.py"], baseline)
    assert [[(one.line, one.code) for one in hunk] for hunk in hunks] == [[(2, "b = 20")], [(5, "d = 5")]]
