"""A cached export is used while nothing it read has changed, and never afterwards."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.loading.dependencies import recording
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference

MODEL = """
    import os, pathlib, json
    import torch
    from torch import nn
    from width_beside import WIDTH
    HERE = pathlib.Path(__file__).parent
    DEPTH = json.loads((HERE / "config.json").read_text())["depth"]
    EXTRA = int(os.environ.get("CACHE_TEST_EXTRA", "0"))
    FILES = len(list((HERE / "parts").glob("*.txt")))
    def build_model():
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH + EXTRA + FILES)))
    def example_inputs(batch=2):
        return torch.randn(batch, WIDTH)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    home = tmp_path / "home"
    (home / "parts").mkdir(parents=True)
    (home / "model.py").write_text(textwrap.dedent(MODEL))
    (home / "width_beside.py").write_text("WIDTH = 4")
    (home / "config.json").write_text('{"depth": 1}')
    return home / "model.py"


def fetched(model: Path, **options: Any) -> Loaded:
    return load(parse_reference(str(model)), **options)


def linears(found: Any) -> Any:
    return sum(node.op_type in ("Gemm", "MatMul") for node in found.graph().nodes)


def test_a_second_load_comes_from_the_cache_at_any_batch(model: Path) -> None:
    assert not fetched(model).cached
    again = fetched(model, batch=9)
    assert again.cached
    assert again.graph().inputs[0].shape == (9, 4)
    assert fetched(model).batch == 2


def test_the_cached_graph_is_the_exported_one(model: Path) -> None:
    first, second = fetched(model), fetched(model)
    assert first.proto.SerializeToString(deterministic=True) == second.proto.SerializeToString(
        deterministic=True
    )


def test_no_cache_exports_afresh(model: Path) -> None:
    fetched(model)
    assert not fetched(model, use_cache=False).cached


@pytest.mark.parametrize(
    "change",
    [
        lambda home, env: (home / "width_beside.py").write_text("WIDTH = 8"),
        lambda home, env: (home / "config.json").write_text('{"depth": 3}'),
        lambda home, env: (home / "parts" / "new.txt").write_text(""),
        lambda home, env: env.setenv("CACHE_TEST_EXTRA", "2"),
        lambda home, env: (home / "model.py").write_text((home / "model.py").read_text() + "# edited\n"),
    ],
    ids=["module", "data file", "folder", "environment variable", "model file"],
)
def test_whatever_building_read_makes_a_new_export_when_it_changes(
    model: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any]
) -> None:
    fetched(model)
    change(model.parent, monkeypatch)
    assert not fetched(model).cached
    assert fetched(model).cached


def test_a_new_local_module_that_would_shadow_a_library_makes_a_new_export(model: Path) -> None:
    fetched(model)
    (model.parent / "json.py").write_text("raise ImportError")
    from analyzer.loading import cache

    entries = list(cache.cache_folder().iterdir())
    assert len(entries) == 1
    assert cache.find(entries[0].name) is None


def test_a_damaged_entry_is_no_entry(model: Path) -> None:
    from analyzer.loading import cache

    fetched(model)
    (entry,) = cache.cache_folder().iterdir()
    entry.write_bytes(entry.read_bytes()[:-10])
    assert not fetched(model).cached


@pytest.mark.parametrize("damage", [b'"batch_range": [1, null]', b'"default_batch"'])
def test_damage_to_what_an_entry_says_about_the_export_is_seen(model: Path, damage: bytes) -> None:
    from analyzer.loading import cache

    fetched(model)
    (entry,) = cache.cache_folder().iterdir()
    content = entry.read_bytes()
    assert damage in content
    entry.write_bytes(content.replace(damage, damage[:-1] + b"x" + damage[-1:]))
    assert not fetched(model).cached


def test_an_entry_that_cannot_be_put_in_its_place_leaves_nothing_behind(model: Path) -> None:
    from analyzer.loading import cache

    fetched(model)
    (entry,) = cache.cache_folder().iterdir()
    entry.unlink()
    entry.mkdir()
    (entry / "in-the-way").touch()
    assert not fetched(model).cached
    assert list(cache.cache_folder().iterdir()) == [entry]


def test_a_cached_export_imports_no_torch(model: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    fetched(model)
    code = (
        "import sys\n"
        "from analyzer.loading.load import load\n"
        "from analyzer.loading.model_reference import parse_reference\n"
        f"found = load(parse_reference({str(model)!r}))\n"
        "found.graph()\n"
        "print(found.cached, 'torch' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    "read",
    [
        'os.environ.get("CACHE_TEST_EXTRA", "0")',
        'os.getenv("CACHE_TEST_EXTRA", "0")',
        '"1" if "CACHE_TEST_EXTRA" in os.environ else "0"',
        'dict(os.environ).get("CACHE_TEST_EXTRA", "0")',
        'os.environ.copy().get("CACHE_TEST_EXTRA", "0")',
        '(os.environ | {}).get("CACHE_TEST_EXTRA", "0")',
    ],
)
def test_an_environment_variable_counts_however_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    monkeypatch.setenv("CACHE_TEST_EXTRA", "1")
    code = compile(f"import os\nvalue = {read}", str(tmp_path / "model.py"), "exec")
    names: dict[str, Any] = {}
    with recording() as recorded:
        exec(code, names)
    assert names["value"] == "1"
    assert recorded[0].environment["CACHE_TEST_EXTRA"] == "1"


def test_a_model_that_keeps_the_environment_reads_and_writes_the_processes_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_TEST_EXTRA", "1")
    before, kind = os.environ, type(os.environ)
    code = compile(
        "from os import environ\nenviron['CACHE_TEST_EXTRA'] = '2'", str(tmp_path / "model.py"), "exec"
    )
    names: dict[str, Any] = {}
    with recording() as recorded:
        exec(code, names)
        assert type(before) is kind  # nobody else's object is changed
        assert before["CACHE_TEST_EXTRA"] == "2"
    assert os.environ is before
    assert os.environ["CACHE_TEST_EXTRA"] == "2"
    os.environ["CACHE_TEST_EXTRA"] = "3"
    assert names["environ"]["CACHE_TEST_EXTRA"] == "3"
    assert "CACHE_TEST_EXTRA" not in recorded[0].environment  # a variable that is only written decides nothing
