"""Standard output and standard error: any encoding, any name, and no word to a terminal or a CI server."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.cli import run_command_line

# A file name as a stranger may give it: GitHub reads both streams line by line.
NAME = "a\n::error::x\x1b[31m\x9b2J\u202e##[error]y"
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|(?m:^\\s*::)|##\\w*\\["
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="file names hold no line break there")


def model(path: Path) -> Path:
    shapes: dict[str, list[str | int | None]] = {"x": ["N", 4, 4], "y": ["N"]}
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"], name="é")], "g", info[:1], info[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    analysis = analyze(model(folder / "m.onnx"), run=False, gpu="l4", cpu="epyc-9654")
    (folder / "r.json").write_text(analysis.render("json"), encoding="utf-8")
    return folder / "r.json"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp437", "utf-16"])
@pytest.mark.parametrize(
    "words",
    [["--help"], ["devices"], ["check", "no\u2028\U0001f600.onnx"]]
    + [["render", "REPORT", "--format", name, "--output", "-"] for name in ("text", "markdown", "csv", "json")]
    + [["compare", "REPORT", "REPORT"], ["check", "REPORT", "--fail-on", "never"]],
)
def test_a_stream_of_any_encoding_shows_what_it_can(
    words: list[str], encoding: str, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    status = run_command_line([str(report) if word == "REPORT" else word for word in words])
    said = ""
    for stream in streams:
        stream.flush()
        # Click takes a stream of ASCII for a locale that was forgotten, and writes UTF-8 to it.
        said += stream.buffer.getvalue().decode(encoding, "replace")
    assert status == (2 if words[0] == "check" and words[1] != "REPORT" else 0), said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "settings",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""},
    ],
    ids=["latin-1", "C"],
)
def test_the_command_runs_in_a_locale_without_our_signs(settings: dict[str, str], report: Path) -> None:
    command = [sys.executable, "-m", "analyzer", "render", str(report), "--format", "text", "--output", "-"]
    ended = subprocess.run(command, env=os.environ | settings, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"Det" in ended.stdout


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[Any, str]:
    status = run_command_line([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out + err


@pytest.mark.parametrize(
    "words",
    [
        ["MODEL", "--no-run", "--gpu", "l4", "--format", "html,json", "--output", "out/", "--verbose"],
        ["MODEL", "--no-run", "--gpu", "l4", "--format", "text", "--output", "-"],
        ["check", "MODEL", "--fail-on", "never"],
        ["check", "MODEL", "--fail-on", "never", "--format", "markdown"],
        ["check", "MODEL", "--fail-on", "never", "--format", "json"],
        ["check", "MODEL", "--fail-on", "never", "--format", "junit"],
        ["check", "MODEL", "--fail-on", "never", "--format", "sarif"],
        ["render", "RECORD", "--format", "text,csv", "--output", "out/"],
        ["render", "RECORD", "--format", "html", "--output", "-"],
        ["compare", "RECORD", "RECORD", "--fail-on", "any"],
        ["check", "RECORD", "--fail-on", "never"],
        ["render", "BROKEN"],
        ["check", "BROKEN"],
        [NAME + ".onnx"],
        ["check", NAME],
        ["check", "--" + NAME],
        ["check", "MODEL", "--gpu", NAME],
        ["check", "MODEL", "--format", NAME],
        ["compare", "RECORD", "RECORD", "--fail-on", NAME],
        ["devices", NAME],
        ["ops", NAME],
        ["rules", NAME],
    ],
)
def test_no_name_steers_a_terminal_or_commands_a_ci_server(
    words: list[str],
    report: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {word: tmp_path / f"{NAME}{word}" for word in ("RECORD", "BROKEN")}
    paths = {word: path.with_name(path.name + ".json") for word, path in paths.items()}
    paths["RECORD"].write_bytes(report.read_bytes())
    paths["BROKEN"].write_text("{")
    if "MODEL" in words:
        paths["MODEL"] = model(tmp_path / f"{NAME}.onnx")
    status, said = printed(capsys, *(paths.get(word, word) for word in words))
    assert status in (0, 1, 2)
    assert said
    assert "Traceback" not in said
    assert not FORBIDDEN.search(said)


def test_a_fault_of_ours_is_told_without_what_steers_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise AssertionError(NAME)

    monkeypatch.setattr("analyzer.record.load_report", fails)
    status, said = printed(capsys, "render", "x.json")
    assert status == 3
    assert "Traceback" in said
    assert not FORBIDDEN.search(said)


def test_a_model_of_a_name_that_is_no_utf_8_is_checked(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = model(Path(os.fsdecode(bytes(tmp_path) + b"/f\xff/m\xff.onnx")))
    assert onnx.load(path).graph.node
    for name in ("text", "json", "sarif", "junit", "markdown", "csv", "github", "html"):
        assert (
            run_command_line(["check", str(path), "--fail-on", "never", "--format", name, "--output", "-"]) == 0
        )
        assert capsysbinary.readouterr().out.decode("utf-8")
