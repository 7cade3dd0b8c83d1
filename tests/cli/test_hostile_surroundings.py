"""Full disks, closed streams, devices, links and signals: one clear message, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from analyzer.record.formats import find
from analyzer.record.output_files import Target, check_writable, write_all


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "net.onnx")
    return "net.onnx"


def analyze(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "analyzer", *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, text=True, check=False, **options)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_behind_standard_output_is_one_clear_message(model: str) -> None:
    with open("/dev/full", "w") as full:
        ended = analyze(
            model, "--no-run", "--format", "text", "--output", "-", stdout=full, stderr=subprocess.PIPE
        )
    assert ended.returncode == 2
    assert "No space left" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="closing a stream is a shell's matter there")
def test_a_closed_standard_error_is_no_fault(model: str) -> None:
    command = f"{sys.executable} -m analyzer {model} --no-run --format json --output out.json 2>&-"
    ended = subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, check=False)
    assert ended.returncode == 0
    assert os.path.exists("out.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    target = Target(format=find("text"), path=pipe)
    check_writable([target])
    write_all({target: "a report\n"})
    reader.join(10)
    assert found == ["a report\n"]
    assert pipe.is_fifo()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "report.json", tmp_path / "latest.json"
    link.symlink_to(target)
    write_all({Target(format=find("json"), path=link): "{}"})
    assert link.is_symlink()
    assert target.read_text() == "{}"


@pytest.mark.skipif(os.name == "nt", reason="no such signals there")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_model_runs_leaves_no_child_folder_or_report(
    model: str, tmp_path: Path, interruptible: Callable[[Sequence[str]], list[str]], number: int, status: int
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "analyzer", model, "--time-budget", "900s", "--output", "out/"]
    running = subprocess.Popen(
        interruptible(command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        text=True,
    )
    while not (children := workers_of(running.pid)) and running.poll() is None:
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(number)
    _, said = running.communicate(timeout=900)
    assert running.returncode == status
    assert "interrupted" in said
    assert not list(temporary.iterdir())
    assert not (tmp_path / "out").exists()
    assert children
    assert not any(child.is_running() for child in children)


@pytest.mark.skipif(os.name == "nt", reason="no such signals there")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_that_comes_in_a_finaliser_still_ends_the_program(name: str, status: int) -> None:
    # Python prints what a finaliser raises and goes on: the signal would be lost.
    program = f"""
import os, signal, sys, time
from analyzer.cli import Terminated, clean_up_on_sigterm

class Ends:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        for _ in range(1000):
            pass

signal.signal(signal.SIGINT, signal.default_int_handler)
clean_up_on_sigterm()
try:
    Ends()
    time.sleep(60)
except Terminated:
    sys.exit(143)
except KeyboardInterrupt:
    sys.exit(130)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == status
    assert ended.stderr == ""


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the children that measure."""
    try:
        children = psutil.Process(pid).children(recursive=True)
        return [child for child in children if "analyzer.measurement.worker" in child.cmdline()]
    except psutil.Error:
        return []
