"""The gate of a team: several models a call, options of each in pyproject.toml, a baseline for each."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.cli import run_command_line


def chain(op_type: str, *, size: int = 1 << 20, opset: int = 20) -> onnx.ModelProto:
    """Relu, an operator, Relu on a vector of floats."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node(op_type, ["a"], ["b"], name="middle"),
        helper.make_node("Relu", ["b"], ["y"], name="after"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models in folders of their own, of one name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        onnx.save(chain("Sigmoid"), tmp_path / folder / "net.onnx")
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = run_command_line(["check", "--quiet", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def baselines(folder: str = "base") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_patterns_and_paths_are_checked_together_each_model_once(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = check(capsys, "a/net.onnx", "*/net.onnx", "./b/net.onnx", "--format", "sarif")
    (run,) = json.loads(out)["runs"]
    assert (status, run["properties"]["models"]) == (0, ["a-net.onnx", "b-net.onnx"])


def test_models_of_one_name_have_baselines_of_their_own_that_stay_theirs_alone(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys, "*/net.onnx", "--baseline", "base/", "--update-baseline")[0] == 0
    assert baselines() == ["a-net.onnx.json", "b-net.onnx.json"]
    onnx.save(chain("Sigmoid", size=1 << 21), "b/net.onnx")
    assert check(capsys, "a/net.onnx", "--baseline", "base/")[0] == 0
    status, out, _ = check(capsys, "b/net.onnx", "--baseline", "base/")
    assert (status, "error A611" in out) == (1, True)


def test_one_change_is_one_error_among_several_models(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(capsys, "*/net.onnx", "--baseline", "base/", "--update-baseline")
    onnx.save(chain("Tan"), "b/net.onnx")  # without a CUDA kernel
    status, out, _ = check(capsys, "*/net.onnx", "--baseline", "base/", "--format", "sarif")
    results = json.loads(out)["runs"][0]["results"]
    (error,) = (one for one in results if one["level"] == "error")
    assert (status, error["ruleId"], error["properties"]["model"]) == (1, "A101", "b-net.onnx")
    assert "since the baseline the latency of the CUDA session rose" in error["message"]["text"]


def test_the_job_summary_shows_what_moved_before_and_after(
    team: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    check(capsys, "*/net.onnx", "--baseline", "base/", "--update-baseline")
    check(capsys, "*/net.onnx", "--baseline", "base/", "--format", "github")
    assert "No figure moved since the baseline." in Path("summary.md").read_text()
    Path("summary.md").unlink()
    onnx.save(chain("Tan"), "b/net.onnx")
    check(capsys, "*/net.onnx", "--baseline", "base/", "--format", "github")
    summary = Path("summary.md").read_text()
    assert "| a-net.onnx | passed |" in summary
    assert "| b-net.onnx | Copies inside the graph | 0 | 2 | – |" in summary
    assert "| a-net.onnx | Copies" not in summary


def test_a_model_that_cannot_be_loaded_is_its_finding_and_the_rest_goes_on(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("b/net.onnx").write_bytes(b"no model")
    status, out, _ = check(capsys, "*/net.onnx", "--format", "junit")
    root = ET.fromstring(out)
    assert (status, root.attrib["failures"]) == (1, "1")
    (case,) = (case for case in root.iter("testcase") if case.find("failure") is not None)
    assert (case.attrib["name"], case.attrib["file"]) == ("A703 model-not-analysed", "b/net.onnx")
    status, out, err = check(capsys, "b/net.onnx")
    assert (status, out) == (2, "")
    assert "error: " in err


def test_baselines_are_all_written_or_none(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("b/net.onnx").write_bytes(b"no model")
    status, _, err = check(capsys, "*/net.onnx", "--baseline", "base/", "--update-baseline")
    assert (status, Path("base").exists()) == (1, False)
    assert "no baseline was written" in err


def test_what_is_wrong_with_an_option_is_one_error(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = check(capsys, "*/net.onnx", "--gpu", "no-such-gpu")
    assert (status, out) == (2, "")
    assert err.count("no-such-gpu") == 1


def test_reports_about_one_model_go_into_a_folder_a_file_each(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = "json,junit,text,markdown"
    for _ in range(2):  # the second time in place of the first's files
        assert check(capsys, "*/net.onnx", "--format", formats, "--output", "out/")[0] == 0
    names = ["a-net.onnx.json", "b-net.onnx.json", "check.md", "check.txt", "check.xml"]
    assert sorted(path.name for path in Path("out").iterdir()) == names
    status, _, err = check(capsys, "*/net.onnx", "--format", "json")
    assert (status, "--format json is about one model" in err) == (2, True)


TABLES = """
[tool.analyzer.check]
gpu = "t4"
fail-on = "note"
ignore = ["A2"]

[[tool.analyzer.check.model]]
path = "a/*.onnx"
gpu = "l4"
fail-on = "error"
ignore = ["A5"]

[[tool.analyzer.check.model]]
path = "b/net.onnx"
"""


def test_a_table_of_a_model_goes_before_the_gates_and_what_is_typed_before_both(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pyproject.toml").write_text(TABLES)

    def gpus(*arguments: str) -> dict[str, str]:
        check(capsys, *arguments, "--format", "json,junit", "--output", "out/")
        return {
            path.name[0]: json.loads(path.read_text())["devices"]["gpu"]["slug"]
            for path in Path("out").glob("*.json")
        }

    assert gpus() == {"a": "l4", "b": "t4"}  # No MODEL: those of the tables.
    assert gpus("a/net.onnx", "b/net.onnx", "--gpu", "h200") == {"a": "h200", "b": "h200"}


def test_what_a_table_fails_on_holds_for_its_model_alone(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("pyproject.toml").write_text(TABLES.replace('ignore = ["A2"]', ""))
    status, out, _ = check(capsys, "--format", "markdown")
    assert "| a-net.onnx | passed |" in out
    assert "| b-net.onnx | failed |" in out  # by a note
    assert status == 1


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ("gpu = 't4'", "[[tool.analyzer.check.model]] 1 needs a path", "path ="),
        ("path = 7", "needs a path, as a text", "path ="),
        ("path = 'a/net.onnx'\nmax-copy = 1", "has an unknown key `max-copy`", "Did you mean max-copies?"),
        ("path = 'a/net.onnx'\nformat = 'json'", "format is for all models", "[tool.analyzer.check]"),
        ("path = '../net.onnx'", "lies outside of", "command line"),
        ("path = 'a/net.onnx'\nbatch = 'x'", "batch", ""),
    ],
)
def test_what_is_wrong_with_a_table_is_one_error(
    team: Path, capsys: pytest.CaptureFixture[str], table: str, message: str, hint: str
) -> None:
    Path("pyproject.toml").write_text(f"[[tool.analyzer.check.model]]\n{table}\n")
    status, out, err = check(capsys, "b/net.onnx")
    assert (status, out) == (2, "")
    assert message in err
    assert hint in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "No model is named"),
        (["c/*.onnx"], "c/*.onnx fits no model"),
        (["a/net.onnx", "gone.onnx"], "No such file: gone.onnx"),
        (
            ["*/net.onnx", "--baseline", "base.json", "--update-baseline"],
            "base.json would be the baseline of 2",
        ),
    ],
)
def test_what_names_no_models_is_one_error(
    team: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, out, err = check(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert "hint: " in err


def test_a_baseline_of_other_options_is_the_finding_of_its_model(
    team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(capsys, "*/net.onnx", "--baseline", "base/", "--update-baseline")
    check(capsys, "b/net.onnx", "--baseline", "base/", "--update-baseline", "--gpu", "t4")
    status, out, _ = check(capsys, "*/net.onnx", "--baseline", "base/")
    assert status == 1
    assert "b/net.onnx: error A703 the baseline is of another GPU: t4, and this check is of l4" in out


def test_a_comment_in_code_that_models_share_is_of_use_if_it_is_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import torch\n"
        "class Odd(torch.nn.Module):\n"
        "    odd = True\n"
        "    def forward(self, x):\n"
        "        x = torch.tan(x) if self.odd else x  # analyze: ignore[A101] small\n"
        "        return torch.relu(x)\n"
        "class Plain(Odd):\n"
        "    odd = False\n"
        "class Alone(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.relu(x)\n"
    )
    inputs = ("--input", "x=1,1048576")
    _, out, _ = check(capsys, "net.py:Plain", *inputs)
    assert "net.py:5: warning A706 the comment ignores A101, which nothing on this line has" in out
    _, out, _ = check(capsys, "net.py:Alone", *inputs)
    assert "A706" not in out  # the comment stands in another class
    _, out, _ = check(capsys, "net.py:Odd", "net.py:Plain", *inputs)
    assert "A706" not in out
    assert "ignored: A101" in out
    Path("net.py").write_text(Path("net.py").read_text().replace(" small", ""))
    _, out, _ = check(capsys, "net.py:Odd", "net.py:Plain", *inputs)
    assert out.count("A706") == 1
    assert "net.py:5: warning A706 the comment that ignores A101 gives no reason" in out
