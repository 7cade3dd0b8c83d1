"""A fleet on Ray: the same records and rows as on this machine, whatever is lost on the way; clear refusals."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from fleet_models import GOOD, KILLED, RAISES, write_onnx

from analyzer import analyze, analyze_fleet
from analyzer.errors import AnalyzerError, UsageError
from analyzer.fleet import cluster as fleet_cluster
from analyzer.fleet import connection as fleet_connection
from analyzer.fleet.cluster import RayCluster
from analyzer.fleet.connection import address_of, answers
from analyzer.fleet.fleet import Finished
from analyzer.fleet.job import Job, Outcome
from analyzer.fleet.local import _ended, _timed_out
from analyzer.fleet.node import (
    Errand,
    NodeFacts,
    Order,
    OtherNodeError,
    program_facts,
    require_same_program,
    sight,
)
from analyzer.record.encoding import load_fleet
from analyzer.record.fleet import Fleet, FleetFailure, FleetModel

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra"),
    pytest.mark.skipif(os.name == "nt", reason="Ray's clusters of several nodes are for Linux and macOS"),
    # Ray leaves sockets and files to the garbage collector.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", autouse=True)
def _token_of_our_own() -> Iterator[None]:
    """Lets nobody else here into the cluster; Ray reads it when it is imported, by whichever test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def cluster(_token_of_our_own: None) -> Iterator[Any]:
    """A cluster of two cores, begun as somebody else would."""
    from ray.cluster_utils import Cluster

    # Of 3 s each, five in a row, by default: a node that is lost is not missed for longer than this.
    quick = {"health_check_period_ms": 300, "health_check_timeout_ms": 900, "health_check_failure_threshold": 2}
    options = {"num_cpus": 2, "include_dashboard": False, "_system_config": quick}
    if find_spec("grpc") is not None:
        options["ray_client_server_port"] = free_port()
    started = Cluster(initialize_head=True, head_node_args=options)
    started.client_port = options.get("ray_client_server_port")
    if started.client_port is not None:
        _wait_for(started.client_port)
    yield started
    _disconnect()
    started.shutdown()


@pytest.fixture(autouse=True)
def _no_connection_of_another_test(request: pytest.FixtureRequest) -> None:
    if "joined" not in request.fixturenames:
        _disconnect()


def _wait_for(port: int) -> None:
    """Clients' part of the head begins some seconds after the rest."""
    place = address_of(f"ray://127.0.0.1:{port}", "the test")
    deadline = time.monotonic() + 60.0
    while not answers(place) and time.monotonic() < deadline:
        time.sleep(0.1)


def _disconnect() -> None:
    if (ray := sys.modules.get("ray")) is not None:
        ray.shutdown()


@pytest.fixture
def joined(cluster: Any) -> Any:
    """The cluster, with this process connected to it as a program is that uses Ray itself.

    Workers belong to a connection and take a second each to begin: tests of what becomes of tasks share both.
    """
    import ray

    if not ray.is_initialized():
        fleet_connection.Connection(cluster.address, None)
    return cluster


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models in a folder of a repository; the working folder is the latter."""
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "team" / "zoo"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder.parent)
    for number, operator in enumerate(("Relu", "Sigmoid"), 1):
        write_onnx(folder / f"net{number}.onnx", width=8 * number, operator=operator)
    (folder / "net.py").write_text(GOOD)
    (folder / "layers.py").write_text("WIDTH = 4\n")
    return folder


def run(on: str, *models: str, output: str = "out", **options: Any) -> tuple[Fleet, list[Finished]]:
    seen: list[Finished] = []
    fleet = analyze_fleet(list(models) or ["zoo"], output=output, on=on, watch=seen.append, **options)
    return fleet, seen


def without_environment(text: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(text)
    del record["environment"]
    return record


def require_records_of_models_alone(*models: str, **options: Any) -> None:
    for model in models:
        alone = analyze(f"zoo/{model}", batch="1,64", gpu="t4", run=False, **options).render("json")
        there = Path("out", model.partition(".")[0] + ".json").read_text()
        assert without_environment(there) == without_environment(alone)
        assert list(without_environment(there)) == list(without_environment(alone))


def failure_alone(model: str) -> FleetFailure:
    """What `analyze MODEL` says, which is what a row must say."""
    with pytest.raises(AnalyzerError) as caught:
        analyze(model, run=False)
    return FleetFailure(kind="error", message=caught.value.message, hint=caught.value.hint or "")


def test_records_and_failures_are_those_of_this_machine(cluster: Any, zoo: Path) -> None:
    # Graphs alone: of Python models, whose server imports PyTorch, where the folder is carried (below).
    (zoo / "net.py").unlink()
    (zoo / "broken.onnx").write_bytes(b"no model")
    said: list[str] = []
    fleet, _ = run(cluster.address, batch="1,64", gpu="t4", say=said.append)
    require_records_of_models_alone("net2.onnx")
    failures = {model.name: model.failure for model in fleet.models if model.failure}
    assert failures == {"broken": failure_alone("zoo/broken.onnx")}
    assert fleet.environment.where == "ray"
    assert fleet.environment.facts["nodes"] == 1
    assert said == []  # this cluster has no dashboard
    # What is finished is finished, wherever it was.
    _, seen = run("local", batch="1,64", gpu="t4")
    assert all(finished.kept for finished in seen)
    # No model is answered in a millisecond.
    fleet, _ = run(cluster.address, "zoo/net1.onnx", output="late", gpu="t4", timeout=0.001)
    assert [model.failure for model in fleet.models] == [_timed_out(0.001)]


def jobs(count: int, device: str = "") -> list[Job]:
    return [
        Job(name=f"m{number}", reference="none:m", folder=os.getcwd(), device=device) for number in range(count)
    ]


def stand_in(seconds: float) -> Any:
    """A task that tells where it ran and what it was given."""

    def work(errand: Errand, order: Order) -> bytes:
        import os
        import time

        import ray

        job = msgspec.msgpack.decode(errand.job, type=Job)
        time.sleep(seconds)
        there = ray.get_runtime_context()
        cores, gpu = there.get_assigned_resources()["CPU"], os.environ.get("CUDA_VISIBLE_DEVICES")
        log = f"{there.get_node_id()} {cores} {gpu}"
        return msgspec.msgpack.encode(
            Outcome(model=FleetModel(name=job.name, reference=job.reference), log=log)
        )

    return work


def test_a_worker_that_is_killed_loses_nothing(joined: Any, zoo: Path, tmp_path: Path) -> None:
    def work(errand: Errand, order: Order) -> bytes:
        import os
        import signal

        import msgspec

        from analyzer.fleet.job import Job, Outcome
        from analyzer.record.fleet import FleetModel

        job = msgspec.msgpack.decode(errand.job, type=Job)
        if job.name == "m1":
            # Twice in the middle of it, as the system does where memory ends.
            for marker in (tmp_path / "once", tmp_path / "twice"):
                if not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        return msgspec.msgpack.encode(Outcome(model=FleetModel(name=job.name, reference=job.reference)))

    executor = RayCluster(joined.address, timeout_s=60.0, work=work)
    try:
        done = {job.name: outcome.model.failure for job, outcome in executor.run(jobs(4))}
    finally:
        executor.close()
    assert (tmp_path / "twice").exists()
    assert done == dict.fromkeys(("m0", "m1", "m2", "m3"))


def test_a_node_that_is_lost_loses_nothing(joined: Any, zoo: Path) -> None:
    node = joined.add_node(num_cpus=2)
    executor = RayCluster(joined.address, timeout_s=60.0, work=stand_in(0.3))
    try:
        done: Counter[str] = Counter()
        places = set()
        for job, outcome in executor.run(jobs(30)):
            assert outcome.model.failure is None
            done[job.name] += 1
            places.add(outcome.log.split()[0])
            if node is not None and len(places) == 2:
                joined.remove_node(node, allow_graceful=False)
                node = None
    finally:
        executor.close()
    assert node is None
    assert done == Counter(f"m{number}" for number in range(30))


def test_a_measurement_has_a_machine_with_its_device_for_itself(joined: Any, zoo: Path) -> None:
    node = joined.add_node(num_cpus=3, num_gpus=1)
    executor = RayCluster(joined.address, timeout_s=60.0, work=stand_in(0.1))
    try:
        facts = {
            name: NodeFacts(program={}, gpu="t4" if name == node.node_id else "", cpu="x")
            for name in executor._found
        }
        executor._found = facts
        assert executor.devices == ("t4",)
        logs = [outcome.log for _, outcome in executor.run(jobs(3, device="t4"))]
        assert logs == [f"{node.node_id} 3.0 0"] * 3  # all its cores, and its GPU
        ((_, outcome),) = executor.run(jobs(1, device="h100"))
        assert outcome.model.failure.message == "No machine that has h100 is left in the cluster."
    finally:
        executor.close()
        joined.remove_node(node, allow_graceful=False)


def test_a_node_with_other_files_stops_all_but_not_where_they_were_changed_meanwhile(
    joined: Any, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(errand: Errand, order: Order) -> bytes:
        from analyzer.fleet.job import Job, Outcome
        from analyzer.fleet.node import OtherNodeError, sight
        from analyzer.record.fleet import FleetModel

        if sight((errand.path,)) != errand.sight:
            raise OtherNodeError("node7 does not have it as it is here.")
        job = msgspec.msgpack.decode(errand.job, type=Job)
        return msgspec.msgpack.encode(Outcome(model=FleetModel(name=job.name, reference=job.reference)))

    def finished(sights: Iterator[str]) -> list[Job]:
        """What is finished where this machine sees these first, and then what is there."""

        def seen(paths: Iterable[str], *, neighbours: bool = False) -> str:
            return sight(paths, neighbours=True) if neighbours else next(sights, "") or sight(paths)

        monkeypatch.setattr(fleet_cluster, "sight", seen)
        executor = RayCluster(joined.address, timeout_s=60.0, work=work)
        try:
            job = Job(name="net1", reference="zoo/net1.onnx", folder=os.getcwd())
            return [job for job, _ in executor.run([job])]
        finally:
            executor.close()

    assert [job.name for job in finished(iter(["before it was changed"]))] == ["net1"]
    with pytest.raises(UsageError, match="node7 does not have it as it is here"):
        finished(itertools.repeat("what no node has"))


def test_what_ran_out_of_memory_is_tried_once_more_alone(joined: Any, zoo: Path) -> None:
    def work(errand: Errand, order: Order) -> bytes:
        from analyzer.fleet.job import failed
        from analyzer.fleet.work import OUT_OF_MEMORY

        job = msgspec.msgpack.decode(errand.job, type=Job)
        fine = Outcome(model=FleetModel(name=job.name, reference=job.reference))
        return msgspec.msgpack.encode(failed(job, OUT_OF_MEMORY) if errand.at_once > 1 else fine)

    executor = RayCluster(joined.address, timeout_s=60.0, work=work)
    try:
        assert [outcome.model.failure for _, outcome in executor.run(jobs(3))] == [None] * 3
    finally:
        executor.close()


def test_what_is_stopped_half_way_ends_on_every_node(
    cluster: Any, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It hangs before anything is exported: servers need not import for that ahead.
    monkeypatch.setattr(fleet_cluster, "need_python", lambda _: False)
    (zoo / "hangs.py").write_text("import time\ntime.sleep(1000)\n")
    asked = [
        Job(name=name, reference=f"zoo/{name}", folder=os.getcwd(), keywords={"run": False, "gpu": "t4"})
        for name in ("hangs.py", "net1.onnx")
    ]
    executor = RayCluster(cluster.address, timeout_s=60.0)
    work = executor.run(asked)
    job, outcome = next(work)
    assert (job.name, outcome.model.failure) == ("net1.onnx", None)
    working = [process for process in psutil.Process().children(recursive=True) if _is_of_a_slot(process)]
    assert len(working) >= 2  # the server, and the model's process that hangs
    executor.close()
    _, alive = psutil.wait_procs(working, timeout=20)
    assert not alive


def _is_of_a_slot(process: psutil.Process) -> bool:
    try:
        return "analyzer.fleet.server" in process.cmdline()
    except psutil.Error:
        return False


def test_nodes_without_the_folder_get_a_copy_in_which_paths_read_the_same_and_measure_what_is_in_it(
    cluster: Any, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the times of files differed on each machine, which is how one tells that a folder is not shared.
    monkeypatch.setattr(fleet_cluster, "sight", lambda *_, **__: secrets.token_hex(4))
    (zoo / "net1.onnx").unlink()
    for name, text in {"raises": RAISES, "killed": KILLED}.items():
        (zoo / f"{name}.py").write_text(text)
    options: dict[str, Any] = {"batch": "1,64", "gpu": "t4", "run": True, "time_budget": "0.3s", "jobs": 1}
    fleet, seen = run(cluster.address, **options)
    require_records_of_models_alone("net.py", "net2.onnx", time_budget="0.3s")
    assert {model.name: model.failure for model in fleet.models if model.failure} == {
        "raises": failure_alone("zoo/raises.py"),
        # As tests/fleet/test_running_a_fleet.py has them of this machine.
        "killed": _ended(-signal.SIGKILL),
    }
    # What could be analysed is measured there, and that is in its row.
    assert [finished.task for finished in seen[4:]] == ["net@this-cpu", "net2@this-cpu"]
    for name in ("net", "net2"):
        cells = next(model.cells for model in fleet.models if model.name == name)
        assert {cell.origin for cell in cells if cell.device == "this-cpu"} == {"measured"}
    # What it was made from is known by our paths: nothing is done again.
    _, seen = run("local", **options)
    assert all(finished.kept for finished in seen)


def test_what_cannot_be_carried_is_said_before_any_work(
    cluster: Any, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray._private.runtime_env import packaging

    monkeypatch.setattr(fleet_cluster, "sight", lambda *_, **__: secrets.token_hex(4))
    write_onnx(tmp_path / "elsewhere.onnx")
    with pytest.raises(UsageError, match=r"outside of the working folder .*elsewhere\.onnx"):
        run(cluster.address, "zoo", "../elsewhere.onnx")
    Path(".gitignore").write_text("*.onnx\n")
    with pytest.raises(UsageError, match=r"not carried to the cluster: zoo/net1\.onnx and zoo/net2\.onnx"):
        run(cluster.address)
    Path(".gitignore").unlink()
    monkeypatch.setattr(packaging, "GCS_STORAGE_MAX_SIZE", 100)
    with pytest.raises(UsageError, match="too large to be carried"):
        run(cluster.address)
    assert not Path("out/net1.json").exists()


def test_a_process_outside_of_the_cluster_is_its_client(cluster: Any, zoo: Path) -> None:
    pytest.importorskip("grpc")
    (zoo / "broken.onnx").write_bytes(b"no model")
    fleet, _ = run(f"ray://127.0.0.1:{cluster.client_port}", "zoo/net2.onnx", "zoo/broken.onnx", gpu="t4")
    assert {model.name: model.failure is None for model in fleet.models} == {"net2": True, "broken": False}


@pytest.mark.parametrize(("lost", "refused"), [(1, False), (99, True)])
def test_a_head_that_loses_the_server_of_its_client_is_asked_again(
    cluster: Any, lost: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    import ray

    connect, calls = ray.init, itertools.count()

    def unreliable(**options: Any) -> Any:
        if next(calls) < lost:
            raise ConnectionAbortedError(
                "Initialization failure from server:\nRuntimeError: Starting Ray client server failed. See "
                "ray_client_server_23000.err for detailed logs."
            )
        return connect(**options)

    monkeypatch.setattr(ray, "init", unreliable)
    monkeypatch.setattr(fleet_connection, "_BETWEEN_TRIES_S", 0.0)
    place = f"ray://127.0.0.1:{cluster.client_port}"
    if refused:
        with pytest.raises(UsageError, match="Starting Ray client server failed"):
            fleet_connection.Connection(place, None)
        assert 1 < next(calls) < 10
    else:
        fleet_connection.Connection(place, None).close()
        # The head itself may refuse once more where the machine is busy.
        assert next(calls) > lost


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_where_nothing_answers_is_refused_with_how_to_start_a_cluster(zoo: Path, form: str) -> None:
    start = time.perf_counter()
    if form.startswith("ray:"):
        pytest.importorskip("grpc")
    with pytest.raises(UsageError, match=r"No Ray answers at .*127\.0\.0\.1") as caught:
        run(form.format(free_port()))
    assert "ray start --head" in caught.value.hint
    assert time.perf_counter() - start < 10.0


def test_what_answers_and_is_no_ray_is_refused(zoo: Path) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(UsageError, match="is not Ray"):
            run(f"127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("place", ["raye", "host:port", "host:0", "ray://", "http://host:1", ":6379"])
def test_a_place_that_is_none_is_refused(zoo: Path, place: str) -> None:
    with pytest.raises(UsageError, match="is no place where a fleet can be worked on"):
        run(place)


def test_without_ray_it_says_what_to_install(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="--on ray needs ray, which is not installed") as caught:
        run("ray")
    assert caught.value.hint == "pip install 'onnx-analyzer[ray]'"


def test_a_cluster_that_wants_a_token_says_so(cluster: Any, zoo: Path) -> None:
    # Another process: Ray reads the token once.
    told = subprocess.run(
        [sys.executable, "-m", "analyzer", "fleet", "zoo", "--on", cluster.address, "--output", "out"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert told.stderr.splitlines() == [
        f"error: The cluster at {cluster.address} wants its token.",
        "hint: With it in RAY_AUTH_TOKEN or ~/.ray/auth_token: RAY_AUTH_MODE=token.",
    ]


def test_another_ray_or_python_is_refused_in_one_sentence() -> None:
    import ray
    from ray._private.utils import check_version_info

    with pytest.raises(RuntimeError) as said:
        check_version_info({"ray_version": "2.40.0", "python_version": "3.12.1"}, "a node")
    error = fleet_connection._refused("head:6379", str(said.value))
    python = ".".join(map(str, sys.version_info[:3]))
    assert error.message == (
        "The cluster at head:6379 has Ray 2.40.0 and Python 3.12.1; "
        f"here are Ray {ray.__version__} and Python {python}."
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"onnx-analyzer": "0.0.9"}, "node7 has onnx-analyzer 0.0.9; this machine has"),
        ({"torch": ""}, "node7 has torch not installed; this machine has"),
        ({"the program's files": "0"}, "node7 has onnx-analyzer .* of other files"),
    ],
)
def test_a_node_with_another_program_is_refused(change: dict[str, str], message: str) -> None:
    ours = program_facts()
    require_same_program(ours, dict(ours), "node7")
    with pytest.raises(OtherNodeError, match=message):
        require_same_program(ours, {**ours, **change}, "node7")


def test_ctrl_c_ends_a_cluster_that_was_started_here_and_keeps_what_is_finished(
    zoo: Path, interruptible: Callable[[Sequence[str]], list[str]]
) -> None:
    (zoo / "net.py").unlink()
    for number in range(3, 31):
        write_onnx(zoo / f"net{number}.onnx", width=number)
    command = [sys.executable, "-m", "analyzer", "fleet", "zoo", "--output", "out", "--on", "ray"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local", "TMPDIR": "/tmp"}
    with subprocess.Popen(interruptible(command), env=environment, stderr=subprocess.PIPE, text=True) as driver:
        assert driver.stderr is not None
        lines = [driver.stderr.readline() for _ in range(3)]
        children = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGINT)
        told = driver.stderr.read()
    assert driver.returncode == 130, (lines, told)
    fleet = load_fleet("out")
    assert len(fleet.models) + fleet.left == 30
    assert len(fleet.models) >= 3
    # The signal may come after a model was kept, and before that was told.
    assert told in {
        f"interrupted; {count} of 30 are finished and kept: the same command goes on with the rest\n"
        for count in (len(fleet.models), len(fleet.models) - 1)
    }
    assert len(children) > 4  # of Ray and of ours
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert fleet.left > 0
