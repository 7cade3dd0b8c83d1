"""A cached export is used while nothing it read has changed, and never afterwards."""

import json
import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from analyzer.loading import cache
from analyzer.loading import load as load_module
from analyzer.loading.dependencies import NO_DIGEST, recording
from analyzer.loading.load import load
from analyzer.loading.loaded import STEP_KEY, Loaded
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


def test_each_value_of_a_variable_that_the_file_reads_has_an_export_of_its_own(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = []
    for value in ("1", "2", "1", "2"):
        monkeypatch.setenv("CACHE_TEST_EXTRA", value)
        cached.append(fetched(model).cached)
    assert cached == [False, False, True, True]


def test_a_new_local_module_that_would_shadow_a_library_makes_a_new_export(model: Path) -> None:
    fetched(model)
    (model.parent / "json.py").write_text("raise ImportError")
    from analyzer.loading import cache

    entries = list(cache.cache_folder().iterdir())
    assert len(entries) == 1
    assert cache.find(entries[0].name.partition("-")[0]) is None


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


# --- forged entries ---------------------------------------------------------------------------------------


class ExportedAfreshError(Exception):
    """No entry was used."""


@dataclass(frozen=True)
class Forgery:
    """A model whose one entry can be put another in the place of."""

    model: Path
    path: Path
    content: bytes

    def put(self, change: Callable[[dict[str, Any]], object], proto: bytes | None = None) -> None:
        """An entry with other facts or another model, and a digest that is right."""
        header, _, content = self.content.partition(b"\n")
        stored, content = json.loads(header), content if proto is None else proto
        change(stored)
        stored["digest"] = cache._digest(stored.get("facts", {}), stored.get("dependencies", {}), content)
        self.path.write_bytes(json.dumps(stored).encode() + b"\n" + content)


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Forgery:
    """Exported once: what is tested is whether it would be again."""
    home = tmp_path_factory.mktemp("forged")
    model = home / "model.py"
    model.write_text(
        "from torch import nn, randn\nmodel = nn.Linear(2, 2)\nexample_inputs = lambda b=2: randn(b, 2)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANALYZER_CACHE_DIR", str(home / "cache"))
        fetched(model)
        (path,) = (each for each in cache.cache_folder().iterdir() if each.is_file())
    return Forgery(model=model, path=path, content=path.read_bytes())


@pytest.fixture
def forgery(entry: Forgery, monkeypatch: pytest.MonkeyPatch) -> Forgery:
    def afresh(*_: object) -> None:
        raise ExportedAfreshError

    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(entry.path.parent.parent))
    monkeypatch.setattr(load_module, "_export_first_that_works", afresh)
    entry.path.unlink(missing_ok=True)
    entry.path.write_bytes(entry.content)
    return entry


def test_the_entry_that_is_forged_below_is_used_as_it_is(forgery: Forgery) -> None:
    forgery.put(lambda stored: None)
    assert fetched(forgery.model).cached


def nested(deep: int) -> Any:
    value: Any = 1
    for _ in range(deep):
        value = [value]
    return value


# A part of the entry, a key in it, and a value of the wrong type or form.
WRONG: list[tuple[str, str, Any]] = [
    ("facts", "name", 7),
    ("facts", "symbol", None),
    ("facts", "batch_range", [1]),
    ("facts", "batch_range", "ab"),
    ("facts", "batch_range", [None, 1]),
    ("facts", "notes", "text"),
    ("facts", "notes", [1]),
    ("facts", "default_batch", "2"),
    ("facts", "default_batch", -1),
    ("facts", "parameters", 0.5),
    ("facts", "exporter", {}),
    ("facts", "static_batch", [1]),
    ("dependencies", "files", []),
    ("dependencies", "files", {"a\0b": None}),
    ("dependencies", "files", {"\ud800": "0"}),
    ("dependencies", "files", {"x": 1}),
    ("dependencies", "folders", {"a\0b": "0"}),
    ("dependencies", "folders", 1),
    ("dependencies", "environment", {"A": []}),
    ("dependencies", "environment", {"\ud800": "x"}),
    ("dependencies", "imports", None),
    ("dependencies", "imports", "json"),
    ("dependencies", "imports", [1]),
    ("dependencies", "home", 7),
    ("dependencies", "home", "a\0b"),
]


@pytest.mark.parametrize(("part", "key", "value"), WRONG)
def test_an_entry_with_a_part_of_the_wrong_type_is_none_at_all(
    forgery: Forgery, part: str, key: str, value: Any
) -> None:
    forgery.put(lambda stored: stored[part].update({key: value}))
    with pytest.raises(ExportedAfreshError):
        fetched(forgery.model)


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored["facts"].clear(),
        lambda stored: stored.update(facts=[]),
        lambda stored: stored.pop("facts"),
        lambda stored: stored.pop("dependencies"),
        lambda stored: stored.update(dependencies=nested(500)),
    ],
)
def test_a_forged_entry_is_none_at_all(forgery: Forgery, change: Callable[[dict[str, Any]], object]) -> None:
    forgery.put(change)
    with pytest.raises(ExportedAfreshError):
        fetched(forgery.model)


@pytest.mark.parametrize("proto", [b"", b"\xff\xff\xff", b"{}", b"\x08\x08"])
def test_a_forged_entry_without_a_model_is_none_at_all(forgery: Forgery, proto: bytes) -> None:
    forgery.put(lambda stored: None, proto)
    with pytest.raises(ExportedAfreshError):
        fetched(forgery.model)


def test_a_forged_training_step_is_none_at_all(forgery: Forgery) -> None:
    for step in ("[]", "{}", '{"carried": 1}', "[" * 50_000, "nothing"):
        proto = onnx.load_from_string(forgery.content.partition(b"\n")[2])
        proto.metadata_props.add(key=STEP_KEY, value=step)
        forgery.put(lambda stored: None, proto.SerializeToString())
        with pytest.raises(ExportedAfreshError):
            fetched(forgery.model)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
@pytest.mark.parametrize("digest", [None, NO_DIGEST, "0" * 64])
def test_an_entry_that_names_a_pipe_or_a_device_is_answered_at_once(
    forgery: Forgery, digest: str | None, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        files = {path: digest}
        forgery.put(lambda stored, files=files: stored["dependencies"]["files"].update(files))  # type: ignore[misc]
        with pytest.raises(ExportedAfreshError):
            fetched(forgery.model)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_an_entry_that_is_a_pipe_is_none_at_all(forgery: Forgery) -> None:
    forgery.path.unlink()
    os.mkfifo(forgery.path)
    assert cache.find(forgery.path.name.partition("-")[0]) is None


def test_an_entry_larger_than_the_whole_cache_is_none_at_all(
    forgery: Forgery, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.find(forgery.path.name.partition("-")[0]) is not None
    monkeypatch.setattr(cache, "_LIMIT_BYTES", forgery.path.stat().st_size - 1)
    assert cache.find(forgery.path.name.partition("-")[0]) is None
