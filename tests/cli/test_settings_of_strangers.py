"""A stranger's ``pyproject.toml`` beside the model: no file outside is written, no browser starts."""

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.cli import COMMANDS, run_command_line


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's repository, with a home beside it."""
    folder = tmp_path / "repository"
    folder.mkdir()
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(made, folder / "net.onnx")
    (tmp_path / ".bashrc").write_text("export PATH=/bin\n")
    (folder / "link").symlink_to(tmp_path / ".bashrc")
    monkeypatch.chdir(folder)
    return folder


def settings(repository: Path, text: str) -> None:
    (repository / "pyproject.toml").write_text(f"[tool.analyzer]\n{text}\n", encoding="utf-8")


@pytest.mark.parametrize("place", ["../.bashrc", "link", "{home}/.bashrc"])
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('format = "html"\noutput = "{place}"', ["net.onnx", "--no-run"]),
        ('[tool.analyzer.check]\nformat = "text"\noutput = "{place}"', ["check", "net.onnx"]),
        ('[tool.analyzer.check]\nbaseline = "{place}"', ["check", "net.onnx", "--update-baseline"]),
        ('[tool.analyzer.check]\nbaseline = "{place}"', ["check", "net.onnx", "--update-baseline", "--force"]),
        ('[tool.analyzer.check]\nbaseline = "{place}"', ["check", "net.onnx"]),
        ('prices = "{place}"', ["net.onnx", "--no-run"]),
    ],
)
def test_settings_reach_no_file_outside_of_their_folder(
    repository: Path, capsys: pytest.CaptureFixture[str], place: str, text: str, arguments: list[str]
) -> None:
    settings(repository, text.replace("{place}", place.format(home=repository.parent)))
    assert run_command_line(arguments) == 2
    assert "lies outside of" in capsys.readouterr().err
    assert (repository.parent / ".bashrc").read_text() == "export PATH=/bin\n"
    assert sorted(os.listdir(repository.parent)) == [".bashrc", "repository"]


@pytest.mark.parametrize("table", ["", "[tool.analyzer.check]\n"])
@pytest.mark.parametrize("command", [["net.onnx", "--no-run"], ["check", "net.onnx"]])
def test_settings_start_no_browser(repository: Path, table: str, command: list[str]) -> None:
    browser = repository / "browser"
    browser.write_text(f"#!{sys.executable}\nopen('started', 'w')\n")
    browser.chmod(0o755)
    settings(repository, f"{table}open = true")
    ended = subprocess.run(
        [sys.executable, "-m", "analyzer", *command],
        env={**os.environ, "BROWSER": str(browser)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "open can only be given on the command line" in ended.stderr
    assert not (repository / "started").exists()


def test_a_file_in_the_repository_that_is_no_report_is_kept(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(repository, 'format = "html"\noutput = "net.onnx"\n[tool.analyzer.check]\nbaseline = "net.onnx"')
    before = (repository / "net.onnx").read_bytes()
    assert run_command_line(["net.onnx", "--no-run"]) == 2
    assert run_command_line(["check", "net.onnx", "--update-baseline"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (repository / "net.onnx").read_bytes() == before


def test_a_baseline_is_written_again_over_a_record_in_whatever_order_its_keys_are(repository: Path) -> None:
    import json

    update = ["check", "net.onnx", "--update-baseline", "--quiet", "--fail-on", "never"]
    assert run_command_line(update) == 0
    baseline = repository / "analyzer-baseline.json"
    written = baseline.read_text()
    # A formatter of the repository may have sorted them.
    baseline.write_text(json.dumps(json.loads(written), sort_keys=True))
    assert run_command_line(update) == 0
    assert baseline.read_text() == written
    baseline.write_text('{"anything": "else"}')
    assert run_command_line(update) == 2
    assert run_command_line([*update, "--force"]) == 0
    assert baseline.read_text() == written


@pytest.mark.parametrize(
    "arguments",
    [
        ["--time-budget", "1e300"],
        ["--runs", "1000000000000"],
        ["--utilisation", "1e-320"],
        ["--batch", "1" * 5000],
        ["--batch", "²"],
        ["--batch", ",".join(map(str, range(1, 200)))],
        ["--threads", "1" * 30],
        ["--input", "x=99999999999999999999,4"],
        ["--output", "n" * 5000 + "/"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_no_machine_could_do_is_one_error(
    repository: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run_command_line(["net.onnx", "--no-run", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="a folder in use cannot be removed there")
@pytest.mark.parametrize("command", [*COMMANDS, "net.onnx"])
def test_a_working_folder_that_was_deleted_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    try:
        assert run_command_line([command]) == 2
    finally:
        os.chdir(tmp_path)
    said = capsys.readouterr().err
    assert "The working folder cannot be used" in said
    assert "Traceback" not in said
