"""ONNX Runtime's real CUDA provider over stand-in libraries: what it asks of CUDA, and how it refuses.

What is timed must end with the GPU idle, a CUDA graph must be recorded once and replayed, and every error that
CUDA answers must reach the user in plain words. Nothing is computed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from measuring_models import model, one_node, perceptron, save
from onnx import TensorProto, helper

from analyzer.errors import MeasurementError, MemoryEndedError
from analyzer.measurement.child_process import measure
from analyzer.measurement.cuda_ceilings import has_cuda
from analyzer.measurement.request import MeasureRequest

pytestmark = pytest.mark.skipif(has_cuda(), reason="this machine has a GPU")

LAUNCHES = 6  # three Gemm with bias: the bias is written, the product added


@pytest.fixture(scope="module")
def asked(stand_in_libraries: Path) -> dict[str, Any]:
    runtime = next(stand_in_libraries.glob("libcudart.so.*[0-9]"))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(stand_in_libraries),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    script = Path(__file__).with_name("cuda_calls.py")
    done = subprocess.run(
        [sys.executable, str(script), runtime.name],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_way_ends_with_a_wait_for_the_gpu(asked: dict[str, Any]) -> None:
    for calls in (*asked["resident"]["copies"], *asked["resident"]["calls"], *asked["graph"]["calls"]):
        assert calls.endswith("S"), calls


def test_a_resident_call_launches_and_waits_and_copies_nothing(asked: dict[str, Any]) -> None:
    for calls in asked["resident"]["calls"]:
        assert re.fullmatch(f"L{{{LAUNCHES}}}S+", calls), calls
    for calls in asked["resident"]["copies"]:
        assert re.fullmatch(f"ML{{{LAUNCHES}}}MS+", calls), calls


def test_a_cuda_graph_is_recorded_once_after_ordinary_runs_and_then_replayed(asked: dict[str, Any]) -> None:
    binding = asked["graph"]["binding"]
    assert binding.count("B") == binding.count("E") == 1
    before, recorded = binding.split("B")
    assert before.count("L") >= LAUNCHES  # memory is taken and algorithms are chosen before
    assert re.match(f"L{{{LAUNCHES}}}E", recorded)
    assert "A" not in recorded
    assert all(re.fullmatch("GS+", calls) for calls in asked["graph"]["calls"])


@pytest.mark.parametrize(("way", "work"), [("step", "L{2}"), ("step as a graph", "G")])
def test_a_step_sends_its_id_works_and_brings_one_back_and_its_cache_stays(
    asked: dict[str, Any], way: str, work: str
) -> None:
    for calls in asked[way]["calls"]:
        assert re.fullmatch(f"[SD]*M[SD]*{work}[SD]+M[SD]*", calls), calls


def test_what_the_host_reads_is_given_in_its_memory(asked: dict[str, Any]) -> None:
    """From the GPU each run would copy it back and wait for that."""
    assert asked["size"]["devices"] == {"x": "cuda", "shape": "cpu"}
    for calls in asked["size"]["calls"]:
        assert re.fullmatch("L+M?S+", calls), calls


def test_the_options_are_those_that_were_asked_for(asked: dict[str, Any]) -> None:
    plain, graph = asked["resident"]["options"], asked["graph"]["options"]
    assert (plain["enable_cuda_graph"], graph["enable_cuda_graph"]) == ("0", "1")
    assert plain["use_tf32"] == "1"
    assert plain["device_id"] == "0"


def failure(
    path: Path, monkeypatch: pytest.MonkeyPatch, libraries: Path, **environment: str
) -> MeasurementError:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asked = MeasureRequest(
        model_path=path, provider="cuda", time_budget_s=0.2, threads=1, timeout_s=900, profile=False
    )
    with pytest.raises(MeasurementError) as caught:
        measure(asked)
    assert caught.value.hint
    for noise in ("hostname", "onnxruntime::", ".cc:", "[ONNXRuntimeError]"):
        assert noise not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("fails", "said", "hint"),
    [
        ("cudaSetDevice=35", "driver is too old", "or newer"),
        ("cudaGetDeviceCount=35", "driver is too old", "update the NVIDIA driver"),
        ("cudaGetDeviceCount=100", "CUDA finds no GPU", "CUDA_VISIBLE_DEVICES"),
        ("cudaSetDevice=46", "the GPU is taken", "nvidia-smi"),
        ("cudaSetDevice=802", "CUDA is not ready", "nvidia-fabricmanager"),
        ("cudaSetDevice=209", "no machine code for this GPU", "onnxruntime-gpu"),
        ("cudaStreamSynchronize=719", "lost or a kernel failed (CUDA error 719)", "Xid"),
        ("cudaStreamSynchronize=999", "lost or a kernel failed (CUDA error 999)", "Xid"),
        ("cudaStreamSynchronize=214", "lost or a kernel failed (CUDA error 214)", "Xid"),
    ],
)
def test_what_cuda_answers_is_said_in_plain_words(
    stand_in_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, said: str, hint: str
) -> None:
    error = failure(save(perceptron(), tmp_path), monkeypatch, stand_in_libraries, STANDIN_FAILS=fails)
    assert said in error.message
    assert hint in error.hint
    assert not isinstance(error, MemoryEndedError)


@pytest.mark.parametrize(
    "environment",
    [
        {"STANDIN_MEMORY": "400000"},  # less than the weights
        {"STANDIN_MEMORY": "1000000"},  # less than the weights and the activations
        {"STANDIN_FAILS": "cudaStreamCreateWithFlags=2"},
    ],
)
def test_memory_that_ends_is_an_error_of_its_own_kind(
    stand_in_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    error = failure(save(perceptron(), tmp_path), monkeypatch, stand_in_libraries, **environment)
    assert isinstance(error, MemoryEndedError)
    assert "out of memory" in error.message
    assert "--batch" in error.hint


def without(libraries: Path, tmp_path: Path, start: str) -> Path:
    """The libraries without those whose names begin so."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    for path in libraries.glob("lib*.so.*[0-9]"):
        if not path.name.startswith(start):
            shutil.copy(path, folder)
    return folder


def convolution() -> onnx.ModelProto:
    return model(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")],
        [("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [("w", np.ones((4, 3, 3, 3), np.float32))],
    )


@pytest.mark.skipif(
    any(one.name.startswith("nvidia-cudnn") for one in distributions()), reason="cuDNN is installed here"
)
def test_without_cudnn_a_convolution_names_it_and_the_line_that_installs_it(
    stand_in_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = without(stand_in_libraries, tmp_path, "libcudnn")
    error = failure(save(convolution(), tmp_path), monkeypatch, libraries)
    assert "cuDNN, which this operator needs on the GPU, is not found" in error.message
    assert error.hint == 'pip install "onnxruntime-gpu[cuda,cudnn]"'


def test_without_a_cuda_library_nothing_runs_on_the_cpu(
    stand_in_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = without(stand_in_libraries, tmp_path, "libcublas.")
    error = failure(save(perceptron(), tmp_path), monkeypatch, libraries)
    assert "driver" in error.message or "libcublas" in error.message


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from analyzer.measurement import cuda_libraries

    monkeypatch.setattr(cuda_libraries, "_driver_trouble", lambda: "")
    monkeypatch.setattr(cuda_libraries, "_loads", lambda name: not name.startswith("libcublas.so"))
    message, hint = cuda_libraries.cuda_trouble()
    assert re.search(r"cannot load: libcublas\.so\.\d+ not found", message)
    assert hint == 'pip install "onnxruntime-gpu[cuda,cudnn]"'


def test_nvidia_s_packages_are_found_in_another_folder_than_onnxruntime_s(
    stand_in_libraries: Path, tmp_path: Path
) -> None:
    """As where a virtual environment sees the system's packages: what is not there is on no search path.

    The runtime is on it with the driver, since a machine may have one that is no stand-in.
    """
    packages, driver = tmp_path / "packages", tmp_path / "driver"
    for path in stand_in_libraries.glob("lib*.so.*[0-9]"):
        part = "cudnn" if "cudnn" in path.name else "cu13"
        near = path.name.startswith(("libcuda.", "libcudart."))
        folder = driver if near else packages / "nvidia" / part / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)
    script = (
        "from analyzer.measurement.noise import chain\n"
        "from analyzer.measurement.session import SessionSettings, create\n"
        "print(create(chain(1), SessionSettings(provider='cuda', optimize=False)).get_providers()[0])\n"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(packages)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.stdout.strip() == "CUDAExecutionProvider", done.stderr


def test_a_library_of_another_version_is_named(stand_in_libraries: Path, tmp_path: Path) -> None:
    """The dynamic linker's own words, as after an update of one package alone."""
    libraries = without(stand_in_libraries, tmp_path, "libcublas.")
    (tmp_path / "other.c").write_text("int nothing;")
    (tmp_path / "other.map").write_text("another { global: nothing; };")
    name = next(stand_in_libraries.glob("libcublas.so.*[0-9]")).name
    subprocess.run(
        [
            *("gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}"),
            *(f"-Wl,--version-script={tmp_path / 'other.map'}", "-o", libraries / name, tmp_path / "other.c"),
        ],
        check=True,
    )
    script = (
        "from analyzer.measurement import cuda_libraries\n"
        "cuda_libraries._driver_trouble = lambda: ''\n"
        "print(*cuda_libraries.cuda_trouble(), sep='|')\n"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(libraries),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=900
    )
    message, hint = done.stdout.strip().split("|")
    assert name in message
    assert re.search("undefined symbol|not found", message)  # the linker's words differ
    assert hint == 'pip install "onnxruntime-gpu[cuda,cudnn]"'


def test_nodes_on_the_cpu_are_placement_and_no_cuda_graph(
    stand_in_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tan has no CUDA kernel: the session stays CUDA's, the node runs on the CPU, the graph is refused."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stand_in_libraries))
    measured = measure(
        MeasureRequest(
            model_path=save(one_node("Tan"), tmp_path),
            provider="cuda",
            time_budget_s=0.2,
            threads=1,
            timeout_s=900,
            profile=False,
        )
    )
    assert measured.environment["providers"][0] == "CUDAExecutionProvider"
    assert any(
        text.startswith("CUDA graph: none, a CUDA graph cannot hold operators that run on the CPU")
        for text in measured.messages
    )
