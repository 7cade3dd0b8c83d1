"""What goes wrong costs that measurement alone, and is said in plain words."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from measuring_models import endless, greedy, one_node, perceptron, save
from onnx import TensorProto, helper

from analyzer.errors import AnalyzerError, InputError, MeasurementError, MemoryForeseenError
from analyzer.measurement import child_process as measuring
from analyzer.measurement.child_process import measure
from analyzer.measurement.request import MeasureRequest
from analyzer.measurement.tensor_files import save_tensors
from analyzer.process import ChildEndedError


def request(path: Path, **options: Any) -> MeasureRequest:
    return MeasureRequest(model_path=path, **{"time_budget_s": 0.3, "threads": 1, "timeout_s": 900, **options})


def failure(path: Path, kind: type[AnalyzerError] = MeasurementError, **options: Any) -> AnalyzerError:
    with pytest.raises(kind) as caught:
        measure(request(path, **options))
    assert caught.value.hint
    assert "[ONNXRuntimeError]" not in caught.value.message
    return caught.value


def test_an_opset_from_the_future_is_named(tmp_path: Path) -> None:
    error = failure(save(one_node("Relu", opset=60), tmp_path))
    assert "opset 60" in error.message
    assert "--opset" in error.hint


def test_an_ir_version_from_the_future_is_named(tmp_path: Path) -> None:
    error = failure(save(one_node("Relu", ir_version=99), tmp_path))
    assert "IR version is 99" in error.message


def test_an_operator_without_a_kernel_for_its_type_is_named(tmp_path: Path) -> None:
    error = failure(save(one_node("Neg", kind=TensorProto.BFLOAT16), tmp_path))
    assert "Neg" in error.message


def test_an_operator_that_nobody_knows_is_named(tmp_path: Path) -> None:
    error = failure(save(one_node("Frobnicate", domain="my.own", domains=("my.own",)), tmp_path))
    assert "Frobnicate" in error.message


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model at all")
    assert "no ONNX model" in failure(path).message


def test_weights_that_are_missing_are_an_error(tmp_path: Path) -> None:
    path = save(perceptron(), tmp_path, external=True)
    (tmp_path / "model.onnx.data").unlink()
    assert "weights" in failure(path).message


def test_more_memory_than_there_is_makes_an_error_and_no_crash(tmp_path: Path) -> None:
    error = failure(save(greedy(), tmp_path))
    assert "memory" in error.message
    assert "--batch" in error.hint


def test_a_run_that_is_foreseen_not_to_fit_is_not_started(tmp_path: Path) -> None:
    error = failure(save(perceptron(), tmp_path), MemoryForeseenError, needed_bytes=2**60)
    assert "would need" in error.message


def test_an_input_that_is_missing_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", other=np.zeros(3, np.float32))
    error = failure(save(perceptron(), tmp_path), InputError, feeds=tmp_path / "feeds.npz")
    assert "x0" in error.message


def test_an_input_of_the_wrong_shape_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x0=np.zeros((32, 5), np.float32))
    error = failure(save(perceptron(), tmp_path), feeds=tmp_path / "feeds.npz")
    assert "x0 has 5 where the model wants 256" in error.message


def test_an_index_out_of_range_names_the_operator(tmp_path: Path) -> None:
    table = onnx.numpy_helper.from_array(np.zeros((4, 2), np.float32), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"], name="lookup")],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [table],
    )
    path = save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path)
    np.savez(tmp_path / "feeds.npz", i=np.array([9]))
    error = failure(path, feeds=tmp_path / "feeds.npz")
    assert "lookup" in error.message
    assert "--input" in error.hint


def test_a_hang_inside_a_kernel_ends_at_the_time_limit(tmp_path: Path) -> None:
    error = failure(save(endless(), tmp_path), timeout_s=3)
    assert "longer than 3 s" in error.message
    assert not [
        child
        for child in children_of(os.getpid())
        if "analyzer.measurement.worker" in " ".join(child.cmdline())
    ]


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGSEGV, "crashed (SIGSEGV)"), (signal.SIGKILL, "lack of memory")]
)
def test_a_child_that_dies_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    stand_in(tmp_path, monkeypatch, f"import os; os.kill(os.getpid(), {int(number)})")
    assert said in failure(save(perceptron(), tmp_path)).message


@pytest.mark.parametrize(
    ("status", "said"), [(0, None), (3, "ended with status 3"), (0xC0000005, "crashed (0xc0000005)")]
)
def test_on_windows_which_has_no_sigkill_a_child_ends_like_any_other(
    monkeypatch: pytest.MonkeyPatch, status: int, said: str | None
) -> None:
    """0xC0000005 is an access violation: Windows gives it as the status of a process, not as a signal."""
    monkeypatch.delattr(signal, "SIGKILL")
    trouble = measuring._trouble(None, ChildEndedError(status, "exit"), "", 1.0)
    assert trouble is None if said is None else said in trouble.message


def test_what_was_measured_before_the_crash_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child dies while it profiles: the latency stays, and a message says what is missing."""
    script = textwrap.dedent("""
        import os, signal
        from analyzer.measurement import on_cpu, worker
        from analyzer.process import run_as_child
        on_cpu.calibrate_bias = lambda *_: os.kill(os.getpid(), signal.SIGSEGV)
        run_as_child(worker.main)
    """)
    stand_in(tmp_path, monkeypatch, script)
    measured = measure(request(save(perceptron(), tmp_path)))
    assert measured.latency.value > 0
    assert measured.nodes == ()
    assert any("not complete" in text and "SIGSEGV" in text for text in measured.messages)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is protected by a call of Linux")
def test_a_session_that_dies_in_a_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime itself crashes: a kernel reads an input whose memory was taken away."""
    script = textwrap.dedent("""
        import ctypes, mmap
        import numpy as np
        from analyzer.measurement import tensor_files, worker
        from analyzer.process import run_as_child

        load = tensor_files.load_tensors

        def without_memory(path):
            feeds = {}
            for name, array in load(path).items():
                memory = mmap.mmap(-1, max(mmap.PAGESIZE, array.nbytes))
                held.append(memory)
                feeds[name] = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
                address = feeds[name].ctypes.data
                assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), len(memory), 0) == 0
            return feeds

        held = []
        tensor_files.load_tensors = without_memory
        run_as_child(worker.main)
    """)
    path = save(perceptron(), tmp_path)
    feeds = tmp_path / "feeds.npz"
    (name,) = (value.name for value in onnx.load(path).graph.input)
    shape = [size.dim_value or 1 for size in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    save_tensors(feeds, {name: np.ones(shape, np.float32)})
    assert measure(request(path, feeds=feeds)).latency.value > 0
    stand_in(tmp_path, monkeypatch, script)
    assert "crashed (SIGSEGV)" in failure(path, feeds=feeds).message


def test_a_fault_in_the_child_shows_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "raise RuntimeError('the tape is torn')")
    assert "the tape is torn" in failure(save(perceptron(), tmp_path)).message


def test_noise_on_the_childs_output_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = textwrap.dedent("""
        from analyzer.measurement import worker
        from analyzer.process import run_as_child
        print("hello")
        run_as_child(worker.main)
    """)
    stand_in(tmp_path, monkeypatch, script)
    assert (
        measure(request(save(perceptron(), tmp_path), profile=False), progress=lambda *_: None).latency.runs > 0
    )


def test_interrupting_ends_the_child_too(
    tmp_path: Path, interruptible: Callable[[Sequence[str]], list[str]]
) -> None:
    path = save(endless(), tmp_path)
    script = textwrap.dedent(f"""
        from pathlib import Path
        from analyzer.measurement.child_process import measure
        from analyzer.measurement.request import MeasureRequest
        print("ready", flush=True)
        measure(MeasureRequest(model_path=Path({str(path)!r}), timeout_s=900))
    """)
    command = interruptible([sys.executable, "-c", script])
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        parent.stdout.readline()
        child = wait_for(lambda: children_of(parent.pid))[0]
        parent.send_signal(signal.SIGINT)
        parent.wait(900)
        assert wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_a_file_of_the_working_folder_does_not_stand_in_for_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise SystemExit('the wrong onnxruntime')")
    monkeypatch.chdir(tmp_path)
    assert measure(request(save(perceptron(), tmp_path), profile=False)).latency.runs > 0


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have a child run this code in place of the worker."""
    (folder / "other_worker.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(measuring, "WORKER", "other_worker")


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_for(condition: Callable[[], Any], seconds: float = 900) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def test_temporary_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    measure(request(save(perceptron(), tmp_path)))
    assert list(Path(tmp_path / "tmp").iterdir()) == []
