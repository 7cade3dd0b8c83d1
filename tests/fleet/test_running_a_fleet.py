"""A fleet on this machine: a record a model, as if it were alone; failures are rows; nothing is done twice."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import psutil
import pytest
from fleet_models import EATS, EXITS, FORKS, GOOD, HANGS, KILLED, RAISES, write_onnx

from analyzer import analyze, analyze_fleet
from analyzer.errors import OutputError, UsageError
from analyzer.fleet.fleet import Finished
from analyzer.record.encoding import load_fleet
from analyzer.record.fleet import Fleet, FleetModel
from analyzer.record.schema import FLEET_PATH

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED = "interrupted; {} of 16 are finished and kept: the same command goes on with the rest"


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "zoo"
    folder.mkdir()
    for number, operator in enumerate(("Relu", "Sigmoid", "Tanh"), 1):
        write_onnx(folder / f"net{number}.onnx", width=8 * number, operator=operator)
    return folder


def run(*models: str, jobs: int = 1, **options: Any) -> tuple[Fleet, list[Finished]]:
    """A fleet, one model at a time unless a test is about several: each place imports everything anew."""
    seen: list[Finished] = []
    fleet = analyze_fleet(list(models) or ["zoo"], output="out", jobs=jobs, watch=seen.append, **options)
    return fleet, seen


def done_anew(seen: Sequence[Finished]) -> list[str]:
    return sorted(finished.task for finished in seen if not finished.kept)


def row(fleet: Fleet, name: str) -> FleetModel:
    return next(model for model in fleet.models if model.name == name)


def without_environment(text: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(text)
    del record["environment"]
    return record


def test_a_record_is_that_of_the_model_alone_and_made_again_where_what_it_imports_changes(zoo: Path) -> None:
    (zoo / "net.py").write_text("import mailcap\n" + GOOD)  # of the standard library; nothing of ours has it
    (zoo / "layers.py").write_text("WIDTH = 4\n")
    models = ("zoo/net.py", "zoo/net2.onnx")
    first, _ = run(*models, batch="1,64", gpu="t4,l4")
    for name in ("net.py", "net2.onnx"):
        alone = analyze(f"zoo/{name}", batch="1,64", gpu="t4,l4", run=False).render("json")
        together = Path("out", name.partition(".")[0] + ".json").read_text()
        assert without_environment(together) == without_environment(alone)
        assert list(without_environment(together)) == list(without_environment(alone))

    (zoo / "layers.py").write_text("WIDTH = 16\n")
    second, seen = run(*models, batch="1,64", gpu="t4,l4")
    assert done_anew(seen) == ["net"]
    assert (row(first, "net").parameters, row(second, "net").parameters) == (8 * 4 + 4, 8 * 16 + 16)

    # A new file that stands in for a module of the standard library.
    (zoo / "mailcap.py").write_text("raise RuntimeError('another')\n")
    third, seen = run(*models, batch="1,64", gpu="t4,l4")
    assert done_anew(seen) == ["net"]
    failure = row(third, "net").failure
    assert failure is not None
    assert "another" in failure.message


def test_a_row_has_a_cell_for_each_device_and_batch_and_the_cheapest_marked(zoo: Path) -> None:
    fleet, _ = run("zoo/net1.onnx", batch="1,64", gpu="t4,l4")
    model = row(fleet, "net1")
    gpus = {(cell.device, cell.batch) for cell in model.cells if cell.kind == "gpu"}
    assert gpus == {("t4", 1), ("t4", 64), ("l4", 1), ("l4", 64)}
    usable = [cell.usd_per_million for cell in model.cells if cell.usd_per_million is not None]
    assert model.cheapest is not None
    assert model.cells[model.cheapest].usd_per_million == min(usable)
    assert [device.slug for device in fleet.devices[:2]] in (["t4", "l4"], ["l4", "t4"])
    assert load_fleet("out") == fleet
    schema = json.loads(FLEET_PATH.read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(Path("out/fleet.json").read_text()))


def test_what_changed_was_taken_away_or_is_asked_otherwise_is_done_again_and_nothing_else(zoo: Path) -> None:
    first, _ = run(batch=1)
    before = {path: path.stat().st_mtime_ns for path in Path("out").glob("net*")}
    again, seen = run(batch=1)
    assert done_anew(seen) == []
    assert again.models == first.models
    write_onnx(zoo / "net2.onnx", width=128)
    changed, seen = run(batch=1)
    assert done_anew(seen) == ["net2"]
    assert row(changed, "net2").digest != row(first, "net2").digest
    assert {path.stem for path, then in before.items() if path.stat().st_mtime_ns != then} == {"net2"}
    Path("out/net1.html").unlink()
    Path("out/net3.json").write_text("")
    _, seen = run(batch=1)
    assert done_anew(seen) == ["net1", "net3"]
    assert Path("out/net1.html").stat().st_size > 1000
    _, seen = run(batch=2)
    assert done_anew(seen) == ["net1", "net2", "net3"]


def test_a_graph_imports_nothing_that_a_file_or_folder_could_stand_in_for(zoo: Path) -> None:
    (zoo / "net1.onnx").rename(zoo / "html.onnx")
    Path("onnx").mkdir()
    run("zoo/html.onnx")
    _, seen = run("zoo/html.onnx")
    assert done_anew(seen) == []


def test_dollars_are_told_by_the_way_of_paying_that_the_settings_name(zoo: Path) -> None:
    Path("pyproject.toml").write_text('[tool.analyzer]\npricing = "spot"\n')
    fleet, _ = run("zoo/net1.onnx", gpu="t4")
    assert fleet.pricing == "spot"


def test_more_jobs_than_models_leave_each_model_its_share_of_the_memory(zoo: Path) -> None:
    fleet, _ = run("zoo/net1.onnx", jobs=5000)
    assert row(fleet, "net1").failure is None


def test_what_raises_hangs_ends_its_process_or_wants_all_memory_is_a_row_and_the_rest_goes_on(
    zoo: Path,
) -> None:
    texts = {"raises": RAISES, "hangs": HANGS, "killed": KILLED, "forks": FORKS, "exits": EXITS, "eats": EATS}
    for name, text in texts.items():
        (zoo / f"{name}.py").write_text(text)
    for name in ("broken", "worse"):
        (zoo / f"{name}.onnx").write_bytes(b"no model")
    fleet, _ = run(timeout=8.0, jobs=2)
    found = {model.name: model.failure.kind for model in fleet.models if model.failure}
    assert found == {
        "raises": "error",
        "broken": "error",
        "worse": "error",
        "hangs": "timeout",
        "killed": "killed",
        "forks": "killed",
        "exits": "killed",
        "eats": "memory",
    }
    assert "no weights" in row(fleet, "raises").failure.message
    assert row(fleet, "killed").failure.message == "Its process was ended by SIGKILL."
    assert row(fleet, "exits").failure.message == "Its process ended with status 3 before it answered."
    assert row(fleet, "hangs").failure.message == "It gave no answer within 8 s."
    assert all(row(fleet, f"net{number}").failure is None for number in (1, 2, 3))
    assert Path("out/logs/killed.log").read_text().strip().endswith("said before the end")
    # Failures are kept as well, until they change or are asked for again.
    _, seen = run(timeout=8.0)
    assert done_anew(seen) == []
    for name in texts:
        (zoo / f"{name}.py").unlink()
    write_onnx(zoo / "broken.onnx")
    fleet, seen = run(timeout=8.0)
    assert done_anew(seen) == ["broken"]
    assert row(fleet, "broken").failure is None
    _, seen = run(timeout=8.0, retry_failed=True)
    assert done_anew(seen) == ["worse"]


def test_options_and_devices_are_those_of_the_manifest(zoo: Path) -> None:
    Path("fleet.toml").write_text(
        '[defaults]\ngpu = "t4"\n[[model]]\nreference = "zoo/net1.onnx"\nname = "ranker"\nbatch = 4\n'
        'owner = "search"\ntags = ["prod"]\n'
    )
    fleet, _ = run("fleet.toml")
    (model,) = fleet.models
    assert (model.name, model.owner, model.tags) == ("ranker", "search", ("prod",))
    assert {(cell.device, cell.batch) for cell in model.cells if cell.kind == "gpu"} == {("t4", 4)}
    assert Path("out/ranker.html").exists()
    # What the manifest says beside the question is no reason to do anything again.
    Path("fleet.toml").write_text(Path("fleet.toml").read_text().replace('"search"', '"ads"'))
    fleet, seen = run("fleet.toml")
    assert fleet.models[0].owner == "ads"
    assert all(finished.kept for finished in seen)


def test_a_file_that_is_not_ours_is_not_replaced(zoo: Path) -> None:
    Path("out").mkdir()
    Path("out/net1.html").write_text("my notes")
    with pytest.raises(OutputError, match=r"net1.html"):
        run()
    assert not Path("out/net2.html").exists()


@pytest.mark.parametrize(("options", "message"), [({"jobs": 0}, "--jobs 0"), ({"timeout": 0.0}, "--timeout 0")])
def test_a_number_that_cannot_be_right_is_refused(zoo: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(**options)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "analyzer", "fleet", "zoo", "--output", "out", "--jobs", "2", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.skipif(os.name == "nt", reason="no such signals there")
def test_a_driver_that_is_stopped_at_any_moment_loses_nothing_that_is_finished(
    zoo: Path, interruptible: Callable[[Sequence[str]], list[str]]
) -> None:
    for number in range(4, 17):
        write_onnx(zoo / f"net{number}.onnx", width=number)
    generator = np.random.default_rng(5)
    finished: dict[str, int] = {}
    # Each signal once as soon as the first model is finished, and once a little later.
    for latest_s, stop in itertools.product((0.0, 0.3), (signal.SIGINT, signal.SIGKILL)):
        with subprocess.Popen(
            interruptible(command()), env=environment(), stderr=subprocess.PIPE, text=True
        ) as driver:
            assert driver.stderr is not None
            for _ in range(len(finished) + 1):
                driver.stderr.readline()
            time.sleep(generator.uniform(0.0, latest_s))
            children = psutil.Process(driver.pid).children(recursive=True)
            driver.send_signal(stop)
            told = driver.stderr.read().splitlines()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive  # whatever worked for it ended with it
        notes = {path.stem for path in Path("out/.analyze-fleet").glob("*.json")}
        assert set(finished) <= notes
        for name, written in finished.items():
            assert Path(f"out/{name}.json").stat().st_mtime_ns == written
        finished = {name: Path(f"out/{name}.json").stat().st_mtime_ns for name in notes}
        if stop == signal.SIGINT:
            assert driver.returncode == 130
            fleet = load_fleet("out")
            assert len(fleet.models) + fleet.left == 16
            # The signal may come after a model was kept, and before it was counted or told.
            assert len(notes) - 1 <= len(fleet.models) <= len(notes)
            counts = {len(fleet.models), len(fleet.models) - 1}
            assert told[-1] in {INTERRUPTED.format(count) for count in counts}
    fleet, seen = run()
    assert len(load_fleet("out").models) == 16
    assert not set(done_anew(seen)) & set(finished)
    for name, written in finished.items():
        assert Path(f"out/{name}.json").stat().st_mtime_ns == written
