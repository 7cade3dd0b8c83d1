"""A fleet on this machine: a record a model, as if it were alone; failures are rows; nothing is done twice."""

from __future__ import annotations

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
from analyzer.record.fleet import Fleet, FleetModel
from analyzer.record.fleet_json import load_fleet
from analyzer.record.schema import FLEET_PATH

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "zoo"
    folder.mkdir()
    for number, operator in enumerate(("Relu", "Sigmoid", "Tanh"), 1):
        write_onnx(folder / f"net{number}.onnx", width=8 * number, operator=operator)
    return folder


def run(*models: str, **options: Any) -> tuple[Fleet, list[Finished]]:
    seen: list[Finished] = []
    fleet = analyze_fleet(list(models) or ["zoo"], output="out", watch=seen.append, **options)
    return fleet, seen


def row(fleet: Fleet, name: str) -> FleetModel:
    return next(model for model in fleet.models if model.name == name)


def without_environment(text: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(text)
    del record["environment"]
    return record


def test_a_record_is_that_of_the_model_alone(zoo: Path) -> None:
    (zoo / "net.py").write_text(GOOD)
    (zoo / "layers.py").write_text("WIDTH = 4\n")
    run(batch="1,64", gpu="t4,l4")
    for name in ("net.py", "net2.onnx"):
        alone = analyze(f"zoo/{name}", batch="1,64", gpu="t4,l4", run=False).render("json")
        together = Path("out", name.partition(".")[0] + ".json").read_text()
        assert without_environment(together) == without_environment(alone)
        assert list(without_environment(together)) == list(without_environment(alone))


def test_a_row_has_a_cell_for_each_device_and_batch_and_the_cheapest_marked(zoo: Path) -> None:
    fleet, _ = run(batch="1,64", gpu="t4,l4")
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


def test_the_same_again_does_nothing_and_a_changed_model_alone_is_done_again(zoo: Path) -> None:
    first, _ = run()
    before = {path: path.stat().st_mtime_ns for path in Path("out").glob("net*")}
    again, seen = run()
    assert all(finished.kept for finished in seen)
    assert again.models == first.models
    write_onnx(zoo / "net2.onnx", width=128)
    changed, seen = run()
    assert [finished.task for finished in seen if not finished.kept] == ["net2"]
    assert row(changed, "net2").digest != row(first, "net2").digest
    assert {path.stem for path, then in before.items() if path.stat().st_mtime_ns != then} == {"net2"}


def test_a_change_of_what_a_model_imports_has_it_done_again(zoo: Path) -> None:
    (zoo / "net.py").write_text(GOOD)
    (zoo / "layers.py").write_text("WIDTH = 4\n")
    first, _ = run()
    (zoo / "layers.py").write_text("WIDTH = 16\n")
    second, seen = run()
    assert [finished.task for finished in seen if not finished.kept] == ["net"]
    assert (row(first, "net").parameters, row(second, "net").parameters) == (8 * 4 + 4, 8 * 16 + 16)


def test_a_new_file_that_stands_in_for_an_import_has_it_done_again(zoo: Path) -> None:
    (zoo / "net.py").write_text("import mailcap\n" + GOOD)  # of the standard library; nothing of ours has it
    (zoo / "layers.py").write_text("WIDTH = 4\n")
    run("zoo/net.py")
    (zoo / "mailcap.py").write_text("raise RuntimeError('another')\n")
    fleet, _ = run("zoo/net.py")
    failure = row(fleet, "net").failure
    assert failure is not None
    assert "another" in failure.message


def test_a_graph_imports_nothing_that_a_file_or_folder_could_stand_in_for(zoo: Path) -> None:
    (zoo / "net1.onnx").rename(zoo / "html.onnx")
    Path("onnx").mkdir()
    run()
    _, seen = run()
    assert all(finished.kept for finished in seen)


def test_dollars_are_told_by_the_way_of_paying_that_the_settings_name(zoo: Path) -> None:
    Path("pyproject.toml").write_text('[tool.analyzer]\npricing = "spot"\n')
    fleet, _ = run("zoo/net1.onnx", gpu="t4")
    assert fleet.pricing == "spot"


def test_more_jobs_than_models_leave_each_model_its_share_of_the_memory(zoo: Path) -> None:
    fleet, _ = run("zoo/net1.onnx", jobs=5000)
    assert row(fleet, "net1").failure is None


def test_another_question_is_answered_anew(zoo: Path) -> None:
    run(batch=1)
    _, seen = run(batch=2)
    assert not any(finished.kept for finished in seen)


def test_files_that_were_taken_away_are_made_again(zoo: Path) -> None:
    run()
    Path("out/net1.html").unlink()
    Path("out/net3.json").write_text("")
    _, seen = run()
    assert sorted(finished.task for finished in seen if not finished.kept) == ["net1", "net3"]
    assert Path("out/net1.html").stat().st_size > 1000


def test_what_raises_hangs_ends_its_process_or_wants_all_memory_is_a_row_and_the_rest_goes_on(
    zoo: Path,
) -> None:
    texts = {"raises": RAISES, "hangs": HANGS, "killed": KILLED, "forks": FORKS, "exits": EXITS, "eats": EATS}
    for name, text in texts.items():
        (zoo / f"{name}.py").write_text(text)
    (zoo / "broken.onnx").write_bytes(b"no model")
    fleet, _ = run(timeout=8.0)
    found = {model.name: model.failure.kind for model in fleet.models if model.failure}
    assert found == {
        "raises": "error",
        "broken": "error",
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
    assert all(finished.kept for finished in seen)
    for name in ("hangs", "killed", "forks", "exits", "eats"):
        (zoo / f"{name}.py").unlink()
    (zoo / "raises.py").write_text(GOOD)
    (zoo / "layers.py").write_text("WIDTH = 4\n")
    fleet, seen = run(timeout=8.0)
    assert [finished.task for finished in seen if not finished.kept] == ["raises"]
    assert row(fleet, "raises").failure is None
    _, seen = run(timeout=8.0, retry_failed=True)
    assert [finished.task for finished in seen if not finished.kept] == ["broken"]


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
def test_a_driver_that_is_killed_at_any_moment_loses_nothing_that_is_finished(
    zoo: Path, interruptible: Callable[[Sequence[str]], list[str]]
) -> None:
    for number in range(4, 13):
        write_onnx(zoo / f"net{number}.onnx", width=number)
    generator = np.random.default_rng(5)
    finished: dict[str, int] = {}
    for number in range(6):
        stop = signal.SIGKILL if number % 2 else signal.SIGINT
        with subprocess.Popen(interruptible(command()), env=environment(), stderr=subprocess.PIPE) as driver:
            assert driver.stderr is not None
            driver.stderr.readline()  # it is on its way
            time.sleep(generator.uniform(0.0, 0.6))
            children = psutil.Process(driver.pid).children(recursive=True)
            driver.send_signal(stop)
            driver.stderr.read()
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive  # whatever worked for it ended with it
        notes = {path.stem for path in Path("out/.analyze-fleet").glob("*.json")}
        assert set(finished) <= notes
        for name, written in finished.items():
            assert Path(f"out/{name}.json").stat().st_mtime_ns == written
        finished = {name: Path(f"out/{name}.json").stat().st_mtime_ns for name in notes}
    subprocess.run(command(), env=environment(), check=True, stderr=subprocess.DEVNULL)
    assert len(load_fleet("out").models) == 12
    for name, written in finished.items():
        assert Path(f"out/{name}.json").stat().st_mtime_ns == written


@pytest.mark.skipif(os.name == "nt", reason="no such signals there")
def test_an_interrupted_fleet_says_how_far_it_is_and_writes_what_is_finished(
    zoo: Path, interruptible: Callable[[Sequence[str]], list[str]]
) -> None:
    (zoo / "hangs.py").write_text(HANGS)
    with subprocess.Popen(
        interruptible(command()), env=environment(), stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stderr is not None
        for _ in range(3):
            driver.stderr.readline()
        driver.send_signal(signal.SIGINT)
        told = driver.stderr.read()
    assert driver.returncode == 130
    assert "3 of 4 are finished and kept" in told
    fleet = load_fleet("out")
    assert (len(fleet.models), fleet.left) == (3, 1)
