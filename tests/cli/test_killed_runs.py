"""Whenever a run is killed: files are whole or absent, and the next run removes what the dead one left."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import run_folder as run_folders
from analyzer.cli import run_command_line
from analyzer.run_folder import (
    FileToBe,
    in_run_folder,
    remove_dead_files,
    run_folder,
    temporary_things_in_one_folder,
)

needs_kill = pytest.mark.skipif(os.name == "nt", reason="no such signal there")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def killed(arguments: list[str], cwd: Path, after: float = 0.0) -> None:
    """Runs a Python program until it has printed a line, and for a while longer, then kills it."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, cwd=cwd) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        time.sleep(after)
        running.kill()


@needs_kill
def test_a_killed_run_leaves_nothing_once_the_next_has_run(temporary: Path, model: Path) -> None:
    command = [sys.executable, "-m", "analyzer", str(model), "--quiet", "--output", "out/"]
    with subprocess.Popen(
        [*command, "--time-budget", "900s"], cwd=model.parent, stderr=subprocess.DEVNULL
    ) as running:
        while not list(temporary.rglob("feeds.npz")) and running.poll() is None:
            time.sleep(0.01)
        running.kill()
    assert os.listdir(temporary)  # the weights, or what stands for them here
    subprocess.run([*command, "--no-run"], cwd=model.parent, check=True, stdout=subprocess.DEVNULL)
    assert os.listdir(temporary) == []
    assert sorted(os.listdir(model.parent / "out")) == ["net.html", "net.json"]


# What every run does with files, over and over: a report and an entry of the cache of a known content.
WRITING = """
import sys
from pathlib import Path
from typing import Any
from analyzer.loading import cache
from analyzer.loading.dependencies import Dependencies
from analyzer.record.formats import find
from analyzer.record.output_files import Target, write_all
from analyzer.run_folder import run_folder, temporary_things_in_one_folder

digits, reports, rounds = "0123456789" * 300_000, Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for number in range(rounds):
    with temporary_things_in_one_folder(), run_folder() as folder:
        (folder / "weights").write_text(digits)
        (folder / "deeper").mkdir()
        (folder / "deeper" / "more").write_text(digits)
        cache.keep("entry", cache.CacheEntry(proto=digits.encode(), facts={}, dependencies=Dependencies()))
    files = [Target(format=find(name), path=reports / f"a.{name}") for name in ("html", "json")]
    write_all(dict.fromkeys(files, digits), force=True)
"""


@needs_kill
def test_kills_at_any_moment_leave_whole_files_alone_after_the_next_run(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from analyzer.loading import cache

    reports, kept = tmp_path / "reports", tmp_path / "cache" / "exports"
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    moments = np.random.default_rng(15).uniform(0, 0.2, 6)
    for moment in moments:
        killed(["-c", WRITING, str(reports), "1000000"], tmp_path, float(moment))
        for path in (
            *reports.glob("a.*"),
            *kept.glob("entry-????????????????"),
        ):  # whole, whatever lies beside them
            assert path.read_bytes().endswith(b"0123456789" * 300_000)
    subprocess.run([sys.executable, "-c", WRITING, str(reports), "1"], check=True, stdout=subprocess.DEVNULL)
    assert os.listdir(temporary) == []
    assert sorted(os.listdir(reports)) == ["a.html", "a.json"]
    assert [name.partition("-")[0] for name in os.listdir(kept)] == ["entry"]
    assert cache.find("entry") is not None


HOLDING = """
import sys
from pathlib import Path
from typing import Any
from analyzer.run_folder import FileToBe, run_folder
with run_folder() as folder, FileToBe(Path(sys.argv[1])) as file:
    (folder / "weights").write_text("x")
    file.write(b"x")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def living(temporary: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", HOLDING, str(temporary)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        yield running
        running.kill()


@needs_kill
def test_what_a_living_run_has_stays_and_goes_once_it_is_dead(
    temporary: Path, living: subprocess.Popen[bytes]
) -> None:
    before = sorted(temporary.rglob("*"))
    assert len(before) == 3  # the folder, the file in it, the file that is being written
    for _ in range(2):
        with run_folder():
            remove_dead_files(temporary)
    assert sorted(temporary.rglob("*")) == before
    living.kill()
    living.wait()
    with run_folder():
        remove_dead_files(temporary)
    assert os.listdir(temporary) == []


def leftover(temporary: Path, name: str = "onnx-analyzer-1-abcdefgh") -> Path:
    # Process 1 runs for ever: a number that another process has keeps nothing.
    folder = temporary / name
    folder.mkdir(mode=0o700)
    (folder / "weights").write_text("x")
    return folder


@needs_kill
def test_only_folders_with_our_very_name_are_removed(temporary: Path) -> None:
    gone = leftover(temporary)
    names = (
        "onnx-analyzer", "onnx-analyzer-1", "onnx-analyzer-1-abc", "onnx-analyzer-x-abcdefgh",
        "analyzer-abcdefgh", "my-onnx-analyzer-1-abcdefgh", "onnx-analyzer-1-abcdefgh.d",
        ".onnx-analyzer-1-abcdefgh",
    )  # fmt: skip
    others = [leftover(temporary, name) for name in names]
    file = temporary / "onnx-analyzer-1-hgfedcba"
    file.write_text("a file of that name")
    with run_folder():
        pass
    assert not gone.exists()
    assert all((other / "weights").exists() for other in others)
    assert file.exists()


@needs_kill
def test_only_files_with_our_very_name_are_removed(tmp_path: Path) -> None:
    for name in (".onnx-analyzer-1-abcdefgh", ".a.html.abcdefgh", ".onnx-analyzer-1-abcdefgh.html", "a.html"):
        (tmp_path / name).write_text("x")
    remove_dead_files(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".a.html.abcdefgh", ".onnx-analyzer-1-abcdefgh.html", "a.html"]


@needs_kill
def test_no_link_is_followed_out_of_the_temporary_folder(temporary: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep" / "file").write_text("x")
    link = temporary / "onnx-analyzer-1-abcdefgh"
    link.symlink_to(precious)
    dead = leftover(temporary, "onnx-analyzer-2-abcdefgh")
    (dead / "folder").symlink_to(precious)
    (dead / "file").symlink_to(precious / "deep" / "file")
    (tmp_path / ".onnx-analyzer-1-abcdefgh").symlink_to(precious / "deep" / "file")
    os.mkfifo(temporary / "onnx-analyzer-3-abcdefgh")  # nobody writes to it: opening it would wait
    with run_folder():
        remove_dead_files(tmp_path)
    assert (precious / "deep" / "file").read_text() == "x"
    assert link.is_symlink()
    assert not dead.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users of that kind there")
def test_what_belongs_to_another_user_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = leftover(temporary)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with run_folder():
        pass
    assert folder.exists()


@needs_kill
def test_folders_that_may_not_be_written_are_removed_too(temporary: Path) -> None:
    with run_folder() as folder:
        (folder / "closed").mkdir()
        (folder / "closed" / "file").write_text("x")
        (folder / "closed").chmod(0o500)
    assert os.listdir(temporary) == []


def test_a_run_folder_is_its_owners_alone(temporary: Path) -> None:
    with run_folder() as folder:
        assert folder.parent == temporary
        assert re.fullmatch(r"onnx-analyzer-\d+-[a-z0-9_]{8}", folder.name)
        if os.name == "posix":
            assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


@needs_kill
def test_a_folder_taken_for_a_leftover_before_it_is_locked_is_made_anew(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp
    taken: list[str] = []

    def made_and_removed(**options: str) -> str:
        folder = make(**options)
        if len(taken) < 3:  # what another run's look for leftovers does at the worst moment
            taken.append(folder)
            os.rmdir(folder)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_removed)
    with run_folder() as folder:
        assert folder.is_dir()
        assert str(folder) not in taken


@needs_kill
def test_a_file_taken_for_a_leftover_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkstemp
    taken: list[str] = []

    def made_and_removed(**options: Any) -> tuple[int, str]:
        handle, name = make(**options)
        if len(taken) < 3:
            taken.append(name)
            os.unlink(name)
        return handle, name

    monkeypatch.setattr(tempfile, "mkstemp", made_and_removed)
    with FileToBe(tmp_path) as file:
        file.write(b"x")
        file.move_to(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]


def test_where_the_system_has_no_locks_a_process_that_runs_keeps_what_it_has(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folders, "_LOCKS", None)
    ours = leftover(temporary, f"onnx-analyzer-{os.getpid()}-abcdefgh")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = leftover(temporary, f"onnx-analyzer-{ended.pid}-abcdefgh")
    with run_folder() as folder:
        assert folder.is_dir()
    assert (ours.exists(), dead.exists(), folder.exists()) == (True, False, False)
    with FileToBe(temporary) as file:
        file.write(b"x")
        file.move_to(temporary / "x")
    assert (temporary / "x").read_bytes() == b"x"


def test_libraries_put_their_temporary_things_into_the_run_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    before = dict(os.environ)
    with temporary_things_in_one_folder():
        folder = tempfile.gettempdir()
        assert Path(folder).parent == temporary
        assert in_run_folder(folder)
        assert in_run_folder(os.path.join(folder, "torchinductor"))
        assert not in_run_folder(f"{folder}2")
        assert not in_run_folder(str(temporary))
        # As PyTorch does.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "torchinductor")
    assert dict(os.environ) == before
    assert tempfile.gettempdir() == str(temporary)
    assert not in_run_folder(folder)
    assert os.listdir(temporary) == []


def test_without_a_temporary_folder_what_needs_none_goes_on(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from analyzer.errors import OutputError

    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with temporary_things_in_one_folder():
        pass
    with pytest.raises(OutputError, match="No temporary folder"), run_folder():
        pass


def test_what_the_exporter_leaves_goes_with_the_run(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.py").write_text(
        "import os, tempfile, torch\n"
        "dict(os.environ)\n"
        "tempfile.mkdtemp()\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + 1\n"
        "def example_inputs(batch):\n"
        "    return (torch.zeros(batch, 3),)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    cached = []
    for name in ("one.json", "two.json"):
        arguments = ["net.py", "--no-run", "--quiet", "--format", "json", "--output", name]
        assert run_command_line(arguments) == 0
        assert os.listdir(temporary) == []
        cached.append(json.loads((tmp_path / name).read_text())["environment"]["export_cached"])
    # Another temporary folder in each run, which the model's code saw, makes no other model.
    assert cached == [False, True]
