"""The gate from the outside: what it prints, what it writes, how it ends."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.cli import run_command_line

OPSETS = {"falls": 22, "stays": 21}


def pooled(opset: int) -> onnx.ModelProto:
    """Convolution, Relu, MaxPool, convolution: a network's stem in 16 x 16."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((8, 8, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w2"], ["y"], name="second", pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "stem",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8, 8, 8])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    for name, opset in OPSETS.items():
        onnx.save(pooled(opset), path / f"{name}.onnx")
    return path


@pytest.fixture(scope="module")
def reports(folder: Path) -> Path:
    """Both models' records, made once."""
    for name in OPSETS:
        target = str(folder / f"{name}.json")
        run_command_line(["check", str(folder / f"{name}.onnx"), "--format", "json", "--output", target])
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = run_command_line(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_model_that_loses_a_cuda_kernel_fails_and_names_operator_opset_and_both_copies(
    here: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = check(capsys, folder / "falls.onnx")
    assert status == 1
    assert "error A101 MaxPool 'pool' runs on the CPU" in out
    assert "--opset 21" in out
    # 4 x 8 x 16 x 16 float32 go to the CPU, a quarter of that comes back.
    assert "; 2 copies between CPU and GPU, 41.0 kB in" in out
    assert "r to the CPU (32.8 kB) and p to the GPU (8.19 kB)" in out
    assert out.splitlines()[-1].startswith("failed: 1 error")


def test_the_same_model_one_opset_older_passes(
    here: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = check(capsys, folder / "stays.onnx")
    assert status == 0
    assert "A101" not in out
    assert out.splitlines()[-1].startswith("passed")


def test_converting_to_the_opset_that_the_finding_names_makes_it_pass(
    here: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = check(capsys, folder / "falls.onnx", "--opset", "21")
    assert status == 0, out


def test_checking_an_onnx_file_never_imports_torch_and_twice_gives_the_same_bytes(
    here: Path, folder: Path
) -> None:
    program = (
        "import sys; from analyzer.cli import run_command_line as run; "
        f"status = run(['check', {str(folder / 'falls.onnx')!r}]); "
        "sys.exit(99 if 'torch' in sys.modules or 'onnxruntime' in sys.modules else status)"
    )
    root = Path(__file__).parents[2]
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=here,
            env={"PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
            capture_output=True,
        )
        for seed in ("1", "2")
    )
    assert first.returncode == 1, first.stderr.decode()
    assert first.stdout == second.stdout != b""


def test_a_saved_report_is_judged_like_the_model(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys, reports / "falls.json")[0] == 1
    assert check(capsys, reports / "stays.json")[0] == 0


def test_options_that_a_saved_report_cannot_take_are_refused(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = check(capsys, reports / "falls.json", "--opset", "21")
    assert status == 2
    assert "--opset changes nothing about a saved report" in err


def test_settings_of_pyproject_set_a_finding_aside_with_its_reason(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (reports / "pyproject.toml").write_text(
        "[tool.analyzer.check]\n"
        'ignore = [{ code = "A10", operator = "pool", reason = "the pooling stays small" }]\n'
    )
    try:
        status, out, _ = check(capsys, reports / "falls.json")
    finally:
        (reports / "pyproject.toml").unlink()
    assert status == 0
    assert "ignored: A101 pool: the pooling stays small" in out


def test_budgets_of_generation_judge_a_record_of_generate(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 256, **sizes}
    (here / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}), encoding="utf-8")
    asked = ["--gpu", "l4", "--no-run", "--prompt", "16", "--output-tokens", "8"]
    run_command_line(
        ["generate", "config.json", *asked, "--format", "json", "--output", "tiny.json", "--quiet"]
    )
    capsys.readouterr()
    generous = ["--max-ttft", "10min", "--max-tpot", "10min", "--min-tokens-per-s", "1e-6"]
    assert check(capsys, "tiny.json", *generous)[0] == 0
    tight = ["--max-ttft", "1ns", "--max-tpot", "1ns", "--min-tokens-per-s", "1e12"]
    status, out, _ = check(capsys, "tiny.json", *tight)
    assert status == 1
    for said in (
        "error A604 the time to the first token",
        "error A605 the time of each",
        "error A606 the tokens",
    ):
        assert said in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--ignore", "A109"], "no rule 'A109'", "A101"),
        (["--fail-on", "warnings"], "neither a severity nor", "Did you mean warning?"),
        (["--max-latency", "soon"], "no duration", "20ms"),
        (["--max-latency", "50"], "--max-latency 50: a limit needs a unit", "write 50ms or 50s"),
        (["--max-ttft", ".5"], "--max-ttft .5: a limit needs a unit", "write .5ms or .5s"),
        (["--max-tpot", "1e-3"], "--max-tpot 1e-3: a limit needs a unit", "write 1e-3ms or 1e-3s"),
        (["--max-ttft", "soon"], "--max-ttft: 'soon' is no duration", "20ms"),
        (["--min-tokens-per-s", "0"], "must be a number above zero", "500"),
        (["--max-tpot", "30ms"], "max-tpot: this analysis is of no model that generates", "analyze generate"),
        (["--max-usd-per-month", "0"], "--max-usd-per-month must be a number above zero, not 0.0", "500"),
        (["--min-rate", "-3"], "--min-rate must be a number above zero, not -3.0", "500"),
        (["--min-rate", "nan"], "--min-rate must be a number above zero, not nan", "500"),
        (["--min-rate", "many"], "'many' is not a valid float", ""),
        (
            ["--max-usd-per-month", "9"],
            "max-usd-per-month: this analysis plans no capacity",
            "analyze capacity",
        ),
        (["--tolerance", "much"], "no share", "5%"),
        (["--tolerance", "2"], "--tolerance: 2 is 200%", "Write 2%; or 200% where that is meant"),
        (["--format", "sarf"], "sarf", ""),
        (["--max-copies", "-1"], "-1", ""),
        (["--no-such-option"], "--no-such-option", ""),
    ],
)
def test_what_cannot_be_run_ends_with_2_and_one_message(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, hint: str
) -> None:
    status, out, err = check(capsys, reports / "falls.json", *arguments)
    assert status == 2
    assert out == ""
    assert message in err
    assert hint in err
    assert "Traceback" not in err


def test_a_settings_key_that_nobody_knows_ends_with_2(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "pyproject.toml").write_text("[tool.analyzer.check]\nmax-copy = 3\n")
    status, _, err = check(capsys, reports / "falls.json")
    assert status == 2
    assert "Did you mean max-copies?" in err


def test_a_model_and_a_report_that_are_not_there_end_with_2(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys, "nothing.json")[0] == 2
    assert check(capsys, "nothing.onnx")[0] == 2


def test_fail_on_never_reports_and_ends_with_0(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = check(capsys, reports / "falls.json", "--fail-on", "never")
    assert status == 0
    assert "error A101" in out


def test_a_baseline_is_written_read_and_compared(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = check(capsys, reports / "stays.json", "--baseline", "base.json")
    assert (status, "note A612 there is no baseline base.json yet" in out) == (0, True)
    status, _, err = check(capsys, reports / "stays.json", "--update-baseline", "--baseline", "base.json")
    assert status == 0
    assert "base.json" in err
    assert len(Path("base.json").read_bytes()) < 2000
    status, out, _ = check(capsys, reports / "stays.json", "--baseline", "base.json")
    assert (status, "A61" in out) == (0, False)
    onto_new = json.loads((reports / "falls.json").read_text())
    onto_new["model"]["name"] = "stays"
    Path("new.json").write_text(json.dumps(onto_new))
    # The report that the baseline was made of serves as one.
    status, whole, _ = check(capsys, "new.json", "--baseline", reports / "stays.json")
    status, out, _ = check(capsys, "new.json", "--baseline", "base.json")
    assert status == 1
    assert whole == out
    assert out.splitlines()[-1].startswith("failed: 1 error")
    assert "the copies inside the graph rose from 0 to 2" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["Copies", "inside", "the", "graph", "0", "2", "–"] in rows


def test_writing_a_baseline_twice_gives_the_same_bytes(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.json", "two.json"):
        check(capsys, reports / "falls.json", "--update-baseline", "--baseline", name)
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_a_baseline_that_is_of_no_use_ends_with_2_and_says_why(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(capsys, reports / "stays.json", "--update-baseline", "--baseline", "stays.json")
    text = Path("stays.json").read_text()
    for changed, message in (
        (text, "the baseline is of another model: stays, and this check is of falls"),
        (text.replace('"schema_version": 1', '"schema_version": 99'), "has schema 99"),
        (text[:-100], "the baseline base.json is no valid JSON"),
        (text.replace('"depth": 0', '"depth": "all"'), "the baseline base.json is damaged at depth"),
        ("[1]", "the baseline base.json is no baseline"),
    ):
        Path("base.json").write_text(changed)
        status, out, err = check(capsys, reports / "falls.json", "--baseline", "base.json")
        assert (status, out) == (2, "")
        assert message in err


def test_several_formats_go_to_a_folder_each_whole(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = check(capsys, reports / "falls.json", "--format", "sarif,junit,text", "--output", "out/")
    assert status == 1
    assert out == ""
    assert sorted(path.name for path in Path("out").iterdir()) == ["falls.sarif", "falls.txt", "falls.xml"]
    assert json.loads(Path("out/falls.sarif").read_text())["version"] == "2.1.0"
    assert ET.parse("out/falls.xml").getroot().get("failures") == "1"


def test_where_one_place_cannot_be_written_nothing_is(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("out").mkdir()
    Path("out/falls.xml").mkdir()
    status, _, err = check(capsys, reports / "falls.json", "--format", "sarif,junit", "--output", "out/")
    assert status == 2
    assert "falls.xml" in err
    assert [path.name for path in Path("out").rglob("*") if path.is_file()] == []


def test_github_prints_commands_and_adds_to_the_job_summary(
    here: Path, reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = here / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    status, out, _ = check(capsys, reports / "falls.json", "--format", "github")
    assert status == 1
    assert sum(line.startswith("::error ") for line in out.splitlines()) == 1
    assert summary.read_text().startswith("before\n## Analyzer check of")
    assert "A101 no-cuda-kernel" in summary.read_text()


def test_the_rules_command_lists_explains_and_suggests(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["rules"]) == 0
    assert "A101" in capsys.readouterr().out
    assert run_command_line(["rules", "a101"]) == 0
    page = capsys.readouterr().out
    for heading in ("What it finds", "Why it matters", "How to fix it", "Example"):
        assert heading in page
    assert run_command_line(["rules", "A191"]) == 2
    assert "A101" in capsys.readouterr().err


def test_every_gpu_that_is_named_is_held_against_the_slo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "net.py").write_text("from torch import nn\nmodel = nn.Linear(8, 4)\n")
    # Nothing takes a nanosecond, and everything a minute.
    status, out, _ = check(capsys, "net.py", "--gpu", "l4,t4,a100", "--slo", "1ns", "--cpu", "epyc-9654")
    assert status == 1
    assert out.count("error A607") == 3
    last = out.splitlines()[-5:]
    for line, name in zip(last, ("AMD EPYC 9654", "NVIDIA L4", "NVIDIA Tesla T4", "NVIDIA A100"), strict=False):
        assert line.startswith(name)
        assert "missed" in line
    status, out, _ = check(capsys, "net.py", "--gpu", "l4,t4,a100", "--slo", "1min", "--cpu", "epyc-9654")
    assert (status, out.count("A607")) == (0, 0)
