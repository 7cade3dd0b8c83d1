"""Whenever a run is killed its files are whole or absent; one that ends leaves nothing temporary."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from analyzer.cli import run_command_line
from analyzer.run_folder import in_run_folder, run_folder, temporary_things_in_one_folder

needs_kill = pytest.mark.skipif(os.name == "nt", reason="no such signal there")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def killed(arguments: list[str], cwd: Path, after: float = 0.0) -> None:
    """Runs a Python program until it has printed a line, and for a while longer, then kills it."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, cwd=cwd) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        time.sleep(after)
        running.kill()


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
def test_kills_at_any_moment_leave_whole_files_or_none(
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
    assert cache.find("entry") is not None


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
        assert re.fullmatch(r"onnx-analyzer-[a-z0-9_]{8}", folder.name)
        if os.name == "posix":
            assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


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
