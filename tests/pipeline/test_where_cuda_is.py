"""The whole analysis on a machine with a GPU, as far as stand-ins for NVIDIA's libraries carry it.

ONNX Runtime's real CUDA provider runs, and computes nothing: times mean nothing, outputs are wrong. What is
tested is that a first run on a GPU goes through to the report, says what was done how, and notices that the
answers differ.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from analyzer.measurement.cuda_ceilings import has_cuda

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(has_cuda(), reason="this machine has a GPU")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sys.path.insert(0, str(ROOT / "tests" / "judge"))
    import standins

    missing = standins.missing()
    if missing:
        pytest.skip(missing)
    return standins.build_driver(standins.build(tmp_path_factory.mktemp("standins")))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A perceptron, as a graph: where a model comes from is no matter here, and PyTorch takes seconds.

    Its weights are larger than the memory of the test that has it end.
    """
    tensors = {
        "first.weight": np.full((1024, 512), 1e-2, np.float32),
        "first.bias": np.zeros(512, np.float32),
        "second.weight": np.full((512, 10), 1e-2, np.float32),
        "second.bias": np.zeros(10, np.float32),
    }
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["hidden"], "first"),
        onnx.helper.make_node("Relu", ["hidden"], ["active"], "active"),
        onnx.helper.make_node("Gemm", ["active", "second.weight", "second.bias"], ["y"], "second"),
    ]
    sides = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", width])
        for name, width in (("x", 1024), ("y", 10))
    ]
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in tensors.items()]
    graph = onnx.helper.make_graph(nodes, "perceptron", sides[:1], sides[1:], weights)
    path = tmp_path_factory.mktemp("model") / "perceptron.onnx"
    opset = onnx.helper.make_opsetid("", 20)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    return str(path)


def analyze(libraries: Path, folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    output = folder / "report.json"
    command = [sys.executable, "-m", "analyzer", *arguments, "--format", "json", "--output", str(output)]
    done = subprocess.run(
        [*command, "--time-budget", "0.5", "--quiet"],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text())


@pytest.fixture(scope="module")
def record(libraries: Path, model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return analyze(libraries, tmp_path_factory.mktemp("gpu"), model, "--batch", "64")


def test_the_gpu_of_the_machine_is_the_target_and_is_measured(record: dict[str, Any]) -> None:
    assert record["devices"]["gpu"]["name"] == "NVIDIA H100 80GB HBM3"
    measured = record["environment"]["measurement"]["cuda"]
    assert set(measured["ways"]) == {"copies", "resident", "graph"}
    assert measured["providers"][0] == "CUDAExecutionProvider"
    assert measured["cuda_options"]["use_tf32"] in ("0", "1")
    assert measured["tf32"] is (measured["cuda_options"]["use_tf32"] == "1")
    assert measured["first_run_s"] > 0
    assert measured["device_peak_bytes"] == 0  # the stand-in's counter stands still
    assert measured["arena_peak_bytes"] > 0


def test_the_gpu_plan_is_measured_and_says_how(record: dict[str, Any]) -> None:
    plan = next(plan for plan in record["plans"] if plan["name"] == "gpu")
    assert plan["origin"] == "measured"
    assert plan["fits"] is True
    assert all(row["gpu"]["origin"] == "measured" for row in record["operators"])
    assert any("blocking launches" in text for text in record["environment"]["messages"])


def test_wrong_answers_are_a_finding(record: dict[str, Any]) -> None:
    rows = record["environment"]["measurement"]["agreement"]
    assert any(row["between"] == "CPU and CUDA" and row["agrees"] is False for row in rows)
    assert any(finding["code"] == "A702" for finding in record["findings"])


def test_memory_that_ends_leaves_a_report_that_names_a_batch(
    libraries: Path, model: str, tmp_path: Path
) -> None:
    """The card says it has 80 GB, the runtime has 1 MB: the estimate is no help, half the batch is named."""
    record = analyze(libraries, tmp_path, model, "--batch", "64", STANDIN_MEMORY="1000000")
    said = json.dumps(record["environment"])
    assert "Not measured on CUDA, predicted instead: out of memory" in said
    assert "use --batch 32" in said
    plan = next(plan for plan in record["plans"] if plan["name"] == "gpu")
    assert plan["origin"] == "predicted"


def test_the_program_of_a_split_runs_with_ends_on_both_sides(
    libraries: Path, model: str, tmp_path: Path
) -> None:
    """The first product is the CPU's, which reads the input, and the last the GPU's."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    folder = tmp_path / "split"
    command = [sys.executable, "-m", "analyzer", "apply", model, "--batch", "64", "--no-run", "--quiet"]
    applied = subprocess.run(
        [*command, "--pin", "first=cpu", "--pin", "second=gpu", "--output", str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert applied.returncode == 1, applied.stderr  # stand-ins compute nothing: numbers are not the CPU's
    assert json.loads((folder / "apply.json").read_text())["copies"] == 1
    ran = subprocess.run(
        [sys.executable, "run.py", "--runs", "2"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("CUDAExecutionProvider, CPUExecutionProvider: ")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the configuration of a small decoder."""
    config = {
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "torch_dtype": "float16",
        "max_position_embeddings": 256,
    }  # fmt: skip
    path = tmp_path_factory.mktemp("decoder") / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def generated(
    libraries: Path, folder: Path, decoder: str, *arguments: str, **environment: str
) -> dict[str, Any]:
    # The kernels of cached decoding ask the card for more than a stand-in has.
    lengths = ("--prompt", "16", "--output-tokens", "4")
    given = {"ORT_ENABLE_XQA": "0", **environment}
    return analyze(libraries, folder, "generate", decoder, *lengths, *arguments, **given)


def said(record: dict[str, Any], text: str) -> str:
    """The one message that has this text."""
    (message,) = [each for each in record["environment"]["messages"] if text in each]
    return str(message)


@pytest.mark.parametrize("launch", ["session", "graph"])
def test_a_generating_model_is_run_on_the_gpu_of_the_machine(
    libraries: Path, decoder: str, tmp_path: Path, launch: str
) -> None:
    """Prompt and tokens, launched as asked; other batches are predicted, and start from what was seen."""
    record = generated(libraries, tmp_path, decoder, "--launch", launch)
    answer, seen = record["generation"], record["environment"]["measurement"]
    assert (answer["origin"], answer["cpu"]["origin"]) == ("measured", "measured")
    steps = seen["steps_on_gpu"]
    assert [(step["tokens"], step["context"]) for step in steps] == [(16, 16), (1, 18)]
    assert (answer["ttft_s"], answer["tpot_s"]) == (steps[0]["median_s"], steps[1]["median_s"])
    assert set(seen["cuda"]["ways"]) == {"resident", *(["graph"] if launch == "graph" else [])}
    assert steps[1]["median_s"] == seen["cuda"]["ways"]["graph" if launch == "graph" else "resident"]
    plan = next(plan for plan in record["plans"] if plan["name"] == "gpu")
    # Plans are of sessions, whatever the answer is about.
    assert plan["origin"] == "measured"
    assert plan["latency_s"] == pytest.approx(seen["cuda"]["ways"]["resident"])
    others = [point for point in answer["sweep"] if point["batch"] > 1]
    assert all(point["tpot_low_s"] <= point["tpot_s"] <= point["tpot_high_s"] for point in others)


def configured(folder: Path, **config: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def test_tokens_of_a_state_space_are_run_and_its_prompt_is_predicted(libraries: Path, tmp_path: Path) -> None:
    """No operator of ONNX Runtime scans a prompt; the state of 32 bits stands beside floats of 16."""
    sizes = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}
    record = generated(libraries, tmp_path, configured(tmp_path, model_type="mamba", **sizes))
    steps = record["environment"]["measurement"]["steps_on_gpu"]
    assert [(step["tokens"], step["context"]) for step in steps] == [(1, 18)]
    assert "SelectiveScan" in said(record, "The prompt was not run")
    answer = record["generation"]
    assert (answer["origin"], answer["tpot_s"]) == ("mixed", steps[0]["median_s"])


def test_an_encoder_is_run_with_the_first_token(libraries: Path, tmp_path: Path) -> None:
    """Of 16 tokens of a source; the decoder's own prompt is one token."""
    sizes = {"vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    record = generated(libraries, tmp_path, configured(tmp_path, model_type="t5", **sizes))
    answer, steps = record["generation"], record["environment"]["measurement"]["steps_on_gpu"]
    assert [(step["tokens"], step["context"]) for step in steps] == [(1, 1), (1, 3)]
    assert (answer["ttft_s"], answer["tpot_s"]) == (steps[0]["median_s"], steps[1]["median_s"])


def test_without_a_cuda_graph_the_session_is_measured_all_the_same(
    libraries: Path, decoder: str, tmp_path: Path
) -> None:
    record = generated(libraries, tmp_path, decoder, "--launch", "graph", STANDIN_FAILS="cudaGraphLaunch=700")
    assert record["generation"]["origin"] == "predicted"
    assert "predicted instead" in said(record, "Not run as one CUDA graph")
    assert said(record, "CUDA graph: none")
    assert next(plan for plan in record["plans"] if plan["name"] == "gpu")["origin"] == "measured"


def test_what_the_gpu_cannot_run_of_generation_is_predicted_and_says_so(
    libraries: Path, decoder: str, tmp_path: Path
) -> None:
    record = generated(libraries, tmp_path, decoder, "--weights", "fp8")
    assert record["generation"]["origin"] == "predicted"
    assert "8-bit floats" in said(record, "Not run on the GPU")


def test_a_card_whose_libraries_are_missing_says_what_to_install(
    libraries: Path, decoder: str, tmp_path: Path
) -> None:
    """The driver tells of the card, and CUDA's provider does not load."""
    alone = tmp_path / "driver"
    alone.mkdir()
    (alone / "libnvidia-ml.so.1").symlink_to(libraries / "libnvidia-ml.so.1")
    record = generated(alone, tmp_path, decoder)
    assert record["generation"]["origin"] == "predicted"
    assert "pip install" in said(record, "Not run on the GPU")


def test_nothing_is_run_where_nothing_shall_be(libraries: Path, decoder: str, tmp_path: Path) -> None:
    record = generated(libraries, tmp_path, decoder, "--no-run")
    assert (record["generation"]["device"], record["generation"]["origin"]) == ("h100-80gb-sxm", "predicted")
    assert record["environment"]["measurement"] == {}


def test_of_several_batches_the_first_is_run(libraries: Path, decoder: str, tmp_path: Path) -> None:
    record = generated(libraries, tmp_path, decoder, "--batch", "4,1")
    assert {step["batch"] for step in record["environment"]["measurement"]["steps_on_gpu"]} == {4}
    assert record["generation"]["batch"] == 4


def test_a_model_for_several_gpus_is_not_run_on_one(libraries: Path, decoder: str, tmp_path: Path) -> None:
    record = generated(libraries, tmp_path, decoder, "--gpus", "2")
    assert record["generation"]["origin"] == "predicted"
    assert any("2 of them share the model" in text for text in record["environment"]["messages"])
