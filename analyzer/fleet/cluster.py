"""Ray: a cluster that is there, or one of this machine alone; the only module that knows Ray.

A task is one model. Ray places it by what it needs (a core and memory; for a measurement the whole of a
machine that has the device) and gives it to another machine where one is lost. Inside of the task the same slot
works on it as on one machine alone, so that rows and messages are the same.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer import __version__
from analyzer.errors import UsageError
from analyzer.fleet.address import Address, address_of, answers, require_answer
from analyzer.fleet.carried import Carried, carried, files_of, model_path, require_inside, sight
from analyzer.fleet.job import Job, Outcome, failed, job_to_bytes, outcome_from_bytes
from analyzer.fleet.local import default_jobs, foreseen_bytes, need_python
from analyzer.fleet.node import (
    Errand,
    NodeFacts,
    Order,
    OtherNodeError,
    lacking,
    program_facts,
    require_same_program,
    work_on_node,
)
from analyzer.fleet.store import NOTES_FOLDER
from analyzer.fleet.work import OUT_OF_MEMORY
from analyzer.progress import StageProgress
from analyzer.record.fleet import FleetFailure
from analyzer.text import first_few

Work = Callable[[Errand, Order], tuple[bytes, Mapping[str, bytes]]]

# Tasks that Ray has for each core: enough that none waits, few enough that the driver holds little.
_AHEAD, _FEWEST_AHEAD = 4, 16
_LOOK_AGAIN_S = 5.0
# Of what is lost with its worker or its machine.
_RETRIES = 3
_PAUSE_S = 1.0
# The first process on a machine imports, from a slow disk perhaps.
_ANSWER_S = 120.0
# Of a cluster started here: outcomes pass through it, a few MB each.
_STORE_BYTES = 256 * 2**20
# A socket's path has 107 bytes; Ray's own part of it takes 70 (session, date, process, name).
_LONGEST_FOLDER = 36

_TOKEN_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_INSTALL_HINT = "pip install 'onnx-analyzer[ray]'"
_SAME_HINT = (
    f"Install the same on all machines: pip install 'onnx-analyzer[ray]=={__version__}', and the same PyTorch."
)
_LEAVE_OUT_HINT = (
    "A file .rayignore says what to leave out (as .gitignore does); or work in a folder that all nodes share."
)
_HERE = "this machine"
_AGAIN_HINT = "What is finished is kept: the same command goes on with the rest."
_LOST = FleetFailure(
    kind="killed",
    message="The machine or the worker that had it was lost, at each of several tries.",
    hint="`--retry-failed` tries it again.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A machine of the cluster.

    Attributes:
        id, name: Ray's, and its own.
        cpus, gpus, memory: What it gives to tasks; bytes.
    """

    id: str
    name: str
    cpus: float
    gpus: float
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """A task that Ray has.

    Attributes:
        job: Of which model.
        node: The machine that it has for itself; empty where it shares one.
        exports: A reference to what it will have exported; None where nobody needs that.
        errand: What it was sent with.
        options: Of Ray.
    """

    job: Job
    node: str = ""
    exports: Any = None
    errand: Errand
    options: Mapping[str, Any]


class RayCluster:
    """The machines of a cluster.

    Args:
        on: ``ray``, ``HOST:PORT`` or ``ray://HOST:PORT``.
        jobs: How many models at once; None for as many as it has cores and memory for.
        timeout_s: Seconds for each model.
        say: Told where its dashboard is.
        measures: Whether devices are measured after all models were looked at.
        work: What a machine does with a model.

    Raises:
        UsageError: It is not there, or its machines would answer otherwise than this one.
    """

    where = "ray"
    facts: Mapping[str, Any]

    def __init__(
        self,
        on: str,
        *,
        jobs: int | None = None,
        timeout_s: float,
        say: StageProgress = lambda _: None,
        measures: bool = False,
        work: Work = work_on_node,
    ) -> None:
        self._jobs = jobs
        self._timeout_s = timeout_s
        self._measures = measures
        self._work = work
        self._sent: dict[Any, _Sent] = {}
        self._exports: dict[str, Any] = {}
        self._shares: Mapping[str, tuple[int, int]] = {}
        self._order = Order(python=False, timeout_s=timeout_s)
        self._ahead, self._looked = 1, -_LOOK_AGAIN_S
        self._connection = _Connection(on, jobs)
        self._ray = self._connection.ray
        try:
            self._task = self._ray.remote(_task(work))
            if self._connection.dashboard:
                say(f"Ray's dashboard: {self._connection.dashboard}")
            self._found = self._facts_of_nodes()
            self.facts = self._facts()
        except BaseException:
            self.close()
            raise

    @property
    def devices(self) -> tuple[str, ...]:
        """GPUs that machines have; where none has one, their CPUs."""
        gpus = {facts.gpu for facts in self._found.values() if facts.gpu}
        return tuple(sorted(gpus or {facts.cpu for facts in self._found.values()}))

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Works on models and yields each as it is finished.

        What ran out of memory beside others is tried once more on a machine of its own; what measures has one.

        Raises:
            UsageError: The cluster cannot get at their files, or is gone.
        """
        if not jobs:
            return
        self._order = self._prepared(jobs)
        together = [job for job in jobs if not job.device]
        again = []
        for job, outcome in self._together(together):
            failure = outcome.model.failure
            if failure is not None and failure.kind == "memory" and len(together) > 1:
                again.append(job)
            else:
                yield job, outcome
        yield from self._alone(again, _roomiest)
        yield from self._alone([job for job in jobs if job.device], self._measured)
        with contextlib.suppress(Exception):  # the answer is there, whatever has become of the cluster
            self.facts = self._facts()

    def close(self) -> None:
        """Ends what runs, and the cluster where it was started here."""
        with contextlib.suppress(Exception):  # one that is gone cannot be told to stop
            for reference in self._sent:
                self._ray.cancel(reference, force=True)
        self._sent.clear()
        self._exports.clear()
        self._connection.close()

    def _together(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Works on models side by side, wherever Ray finds room."""
        waiting = deque(jobs)
        most = max((node.memory for node in self._nodes()), default=0)
        while waiting or self._sent:
            while waiting and len(self._sent) < self._limit():
                job = waiting.popleft()
                # A machine that has less than is foreseen may still do.
                memory = min(foreseen_bytes(job), most)
                self._send(job, num_cpus=1, memory=memory, max_retries=_RETRIES)
            job, outcome = self._next()
            yield job, outcome or failed(job, _LOST)

    def _alone(
        self, jobs: Sequence[Job], devices_of: Callable[[Sequence[_Node]], Mapping[str, str]]
    ) -> Iterator[tuple[Job, Outcome]]:
        """Works on jobs that each have a machine for themselves, one with the job's device.

        Args:
            jobs: They.
            devices_of: The device by machine, of machines that may be taken.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        waiting: dict[str, deque[Job]] = {}
        for job in jobs:
            waiting.setdefault(job.device, deque()).append(job)
        tries: Counter[str] = Counter()
        while any(waiting.values()) or self._sent:
            nodes = self._nodes()
            devices = devices_of(nodes)
            taken = {sent.node for sent in self._sent.values()}
            for node in nodes:
                queue = waiting.get(devices[node.id]) if node.id in devices else None
                if queue and node.id not in taken:
                    job = queue.popleft()
                    self._send(
                        job,
                        node=node.id,
                        num_cpus=int(node.cpus),
                        num_gpus=min(1, node.gpus) if job.device else 0,
                        max_retries=0,
                        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
                    )
            for device in waiting.keys() - set(devices.values()):
                while waiting[device]:
                    job = waiting[device].popleft()
                    yield job, failed(job, _no_machine(device))
            if self._sent:
                job, outcome = self._next()
                if outcome is None and tries[job.task] < _RETRIES:
                    tries[job.task] += 1
                    waiting[job.device].append(job)
                    time.sleep(_PAUSE_S)  # until the cluster knows that a machine is gone
                else:
                    yield job, outcome or failed(job, _LOST)

    def _limit(self) -> int:
        """How many tasks Ray has at once; looked at again as machines come and go."""
        if self._jobs is not None:
            return self._jobs
        if time.monotonic() - self._looked >= _LOOK_AGAIN_S:
            self._looked = time.monotonic()
            cores = sum(node.cpus for node in self._nodes())
            self._ahead = max(_FEWEST_AHEAD, int(_AHEAD * cores))
        return self._ahead

    def _send(self, job: Job, *, node: str = "", **options: Any) -> None:
        started = self._connection.started
        path = model_path(job) or ""
        # Machines that share a cache have the export already.
        wanted = self._measures and not job.device and not started
        errand = Errand(
            job=job_to_bytes(job),
            path=path,
            sight=sight((path,)) if path and not started and self._order.carried is None else "",
            returns_exports=wanted,
        )
        shares = {node: (1, self._shares.get(node, (1, 0))[1])} if node else self._shares
        exports = self._exports.get(job.name) if job.device else None
        # In a list it is no argument that must be there: an export that was lost is made again.
        arguments = (errand, self._order, shares, [] if exports is None else [exports])
        sent = self._task.options(num_returns=2 if wanted else 1, **options).remote(*arguments)
        outcome, made = sent if wanted else (sent, None)
        self._sent[outcome] = _Sent(job=job, node=node, exports=made, errand=errand, options=options)

    def _next(self) -> tuple[Job, Outcome | None]:
        """The next job that is finished; without an outcome where it was lost.

        Raises:
            UsageError: The cluster is gone, or a machine is none of ours.
        """
        from ray import exceptions

        try:
            (reference,), _ = self._ray.wait(list(self._sent), num_returns=1)
            sent = self._sent.pop(reference)
            outcome = outcome_from_bytes(self._ray.get(reference))
        except exceptions.RayTaskError as error:
            errand = sent.errand
            if errand.sight and sight((errand.path,)) != errand.sight:
                # Somebody wrote to it in between.
                self._send(sent.job, node=sent.node, **sent.options)
                return self._next()
            return sent.job, _fault(sent.job, error)
        except exceptions.OutOfMemoryError:
            return sent.job, failed(sent.job, OUT_OF_MEMORY)
        except exceptions.RuntimeEnvSetupError as error:
            raise UsageError(
                f"A machine cannot unpack the working folder: {_line(error)}", hint=_LEAVE_OUT_HINT
            ) from error
        except exceptions.RayError:
            return sent.job, None
        except ConnectionError as error:
            raise UsageError(
                f"The connection to Ray at {self._connection.told} is lost.", hint=_AGAIN_HINT
            ) from error
        if sent.exports is not None and outcome.exports:
            self._exports[sent.job.name] = sent.exports
        return sent.job, outcome

    def _prepared(self, jobs: Sequence[Job]) -> Order:
        """What all jobs are worked on with; where machines do not see their files, these are carried first."""
        self._shares = {node.id: (int(node.cpus), node.memory) for node in self._nodes()}
        python = need_python(jobs)
        if self._connection.started:
            return Order(python=python, timeout_s=self._timeout_s)
        paths = sorted({path for job in jobs for path in files_of(job)})
        told = self._order.carried
        if told is None:
            ours = sight(paths, neighbours=True)
            # By value: what is asked of a machine is no part of the package there.
            seen = self._asked(lambda: sight(paths, neighbours=True))
            if any(other != ours for other in seen.values()):
                told = self._carry(jobs)
        if told is not None:
            require_inside(jobs, told.folder)
            self._require_carried(paths, told)
        return Order(python=python, timeout_s=self._timeout_s, program=program_facts(), carried=told)

    def _carry(self, jobs: Sequence[Job]) -> Carried:
        """Has Ray carry the working folder; in a job of Ray's it has done so already."""
        folder = _folder_of_the_job() or jobs[0].folder
        require_inside(jobs, folder)
        told = carried(folder, notes=NOTES_FOLDER)
        if not _folder_of_the_job():
            self._connection.carry(told)
            self._task = self._ray.remote(_task(self._work))
        return told

    def _require_carried(self, paths: Sequence[str], told: Carried) -> None:
        from ray import exceptions

        try:
            names = self._ray.get(self._ray.remote(lambda: lacking(paths, told)).options(num_cpus=0).remote())
        except exceptions.RayError as error:
            raise UsageError(
                f"The cluster cannot unpack the working folder: {_line(error)}", hint=_LEAVE_OUT_HINT
            ) from error
        if names:
            raise UsageError(
                f"These files were not carried to the cluster: {first_few(names)}.",
                hint=".gitignore or .rayignore leaves them out; with RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1 the "
                "former counts no more.",
            )

    def _facts_of_nodes(self) -> Mapping[str, NodeFacts]:
        """What machines are, by Ray's name.

        Raises:
            UsageError: One has another version of the program, or none.
        """
        found: dict[str, NodeFacts] = dict(self._asked(_node_facts()))
        for node in self._nodes():
            if node.id in found and not node.gpus:  # not ours to use
                found[node.id] = replace(found[node.id], gpu="")
        if not self._connection.started:
            names = {node.id: node.name for node in self._nodes()}
            for name, facts in found.items():
                try:
                    require_same_program(program_facts(), facts.program, names.get(name, name))
                except OtherNodeError as error:
                    raise UsageError(f"{error}", hint=_SAME_HINT) from error
        return found

    def _asked(self, question: Callable[[], Any]) -> Mapping[str, Any]:
        """Answers of all machines, by Ray's name; one that is lost meanwhile has none."""
        from ray import exceptions
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self._ray.remote(question)
        nodes = {}
        for node in self._nodes():
            strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
            nodes[task.options(num_cpus=0, max_retries=1, scheduling_strategy=strategy).remote()] = node
        done, _ = self._ray.wait(list(nodes), num_returns=len(nodes), timeout=_ANSWER_S) if nodes else ((), ())
        answers = {}
        for reference in done:
            try:
                answers[nodes[reference].id] = self._ray.get(reference)
            except exceptions.RayTaskError as error:
                name, cause = nodes[reference].name, error.cause
                if isinstance(cause, ImportError):
                    message = f"{name} cannot import what it needs: {_line(cause)}"
                    raise UsageError(message, hint=_SAME_HINT) from error
                raise UsageError(f"{name} cannot be used: {_line(cause)}", hint=_SAME_HINT) from error
            except exceptions.RayError:
                continue
        if nodes and not answers:
            raise UsageError(
                f"No machine of the cluster at {self._connection.told} answers.", hint="`ray status` says why."
            )
        return answers

    def _measured(self, nodes: Sequence[_Node]) -> Mapping[str, str]:
        """The device that each machine measures: its GPU, else its CPU."""
        known = {node.id: self._found[node.id] for node in nodes if node.id in self._found}
        return {name: facts.gpu or facts.cpu for name, facts in known.items()}

    def _nodes(self) -> list[_Node]:
        """Machines that are alive and take tasks."""
        nodes = []
        for node in self._ray.nodes():
            resources = node["Resources"]
            if node["Alive"] and resources.get("CPU", 0) >= 1:
                nodes.append(
                    _Node(
                        id=node["NodeID"],
                        name=node["NodeManagerHostname"],
                        cpus=resources["CPU"],
                        gpus=resources.get("GPU", 0),
                        memory=int(resources.get("memory", 0)),
                    )
                )
        return nodes

    def _facts(self) -> Mapping[str, Any]:
        nodes = self._nodes()
        return {
            "ray": self._ray.__version__,
            "address": self._connection.told,
            "nodes": len(nodes),
            "cpus": sum(node.cpus for node in nodes),
            "devices": list(self.devices),
            "dashboard": self._connection.dashboard,
        }


class _Connection:
    """What ties this process to a cluster.

    Attributes:
        ray: The package.
        started: Whether the cluster is of this machine alone, started here.
        told: Where it is.
        dashboard: Where it can be looked at; empty for nowhere.
    """

    def __init__(self, on: str, jobs: int | None) -> None:
        self._address: Address | None = None if on == "ray" else address_of(on, "--on")
        self.ray: Any = _imported(on)
        self._folder = ""
        self._joined = bool(self.ray.is_initialized())
        self.started = False
        self.dashboard = ""
        if self._joined:  # by a program that uses Ray itself
            self.told = "the cluster of this process"
            return
        self._options: dict[str, Any] = {}
        if self._address is None:
            self._address = _named_by_variable()
        if self._address is not None:
            self._options = {"address": self._address.text}
        else:
            # Ray looks it up itself, and for that one alone uses the token of this machine.
            self._address = _started_before()
        if self._address is not None:
            self.told = self._address.text
            require_answer(self._address)
            self._begin(**self._options)
        else:
            self.told = _HERE
            self.started = True
            self._start(jobs or default_jobs())

    def carry(self, told: Carried) -> None:
        """Connects anew with a copy of a folder on each machine.

        Raises:
            UsageError: It is too large, or this connection is none of ours.
        """
        if self._joined or self._address is None:
            raise UsageError(
                "The machines of the cluster do not have the working folder of this one.",
                hint='Before: ray.init(..., runtime_env={"working_dir": "."}), or leave the connecting to us.',
            )
        self.ray.shutdown()
        excludes = [f"/{Path(name).as_posix()}/" for name in told.left_out]
        self._begin(address=self._address.text, runtime_env={"working_dir": told.folder, "excludes": excludes})

    def close(self) -> None:
        """Leaves the cluster; one that was started here ends."""
        if self._joined:
            return
        with contextlib.suppress(Exception), _same_sigterm():
            self.ray.shutdown()
            self._tell_deaths(True)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _tell_deaths(self, yes: bool) -> None:
        """Whether Ray prints on standard output how workers and machines died; rows say what matters of it."""
        # As Ray's own debugger does; no option says so (log_to_driver is about what tasks print).
        self.ray._private.worker._worker_logs_enabled = yes  # noqa: SLF001

    def _start(self, cores: int) -> None:
        # No word to its makers, and no token in the user's home, unless the user has said otherwise.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not any(name in os.environ for name in _TOKEN_VARIABLES):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        base = tempfile.gettempdir()
        self._folder = tempfile.mkdtemp(
            prefix="analyze-ray-", dir=base if len(base) < _LONGEST_FOLDER - 20 else "/tmp"
        )
        self._begin(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            _temp_dir=self._folder,
        )

    def _begin(self, **options: Any) -> None:
        """Connects, or starts a cluster.

        Raises:
            UsageError: That cannot be done.
        """
        try:
            # Its warnings are for programmers.
            with _same_sigterm(), _quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                context = self.ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
        except Exception as error:
            self.close()
            raise _refused(self.told, _all_of(error)) from error
        self._tell_deaths(False)
        url = getattr(context, "dashboard_url", None)
        self.dashboard = "" if not url else url if "://" in url else f"http://{url}"


def _imported(on: str) -> Any:
    # Read when Ray is imported; 20 tries, a second each, and a minute by default.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", "10")
    try:
        import ray

        if on.startswith("ray://"):
            import grpc  # noqa: F401 - Ray Client's
    except ImportError as error:
        raise UsageError(
            f"--on {on} needs {error.name}, which is not installed.", hint=_INSTALL_HINT
        ) from error
    return ray


def _named_by_variable() -> Address | None:
    """The cluster that RAY_ADDRESS names; None for none."""
    named = os.environ.get("RAY_ADDRESS", "")
    return None if named in ("", "auto", "local") else address_of(named, "RAY_ADDRESS")


def _started_before() -> Address | None:
    """The cluster that ``ray start`` began on this machine; None for none."""
    if os.environ.get("RAY_ADDRESS") == "local":
        return None
    from ray._private.utils import read_ray_address  # what ray.init() reads, and nothing else tells

    text = read_ray_address()
    address = address_of(text, "ray start") if text else None
    return address if address is not None and answers(address) else None


def _refused(where: str, text: str) -> UsageError:
    """What Ray says where it cannot be connected or started, as one sentence."""
    if "AuthenticationError" in text or "Unauthenticated" in text:
        return UsageError(
            f"The cluster at {where} wants its token.",
            hint="With it in RAY_AUTH_TOKEN or ~/.ray/auth_token: RAY_AUTH_MODE=token.",
        )
    versions = re.findall(r"(Ray|Python): (\S+)", text)
    if len(versions) >= 4:
        (_, ray), (_, python), (_, our_ray), (_, our_python) = versions[:4]
        return UsageError(
            f"The cluster at {where} has Ray {ray} and Python {python}; here are Ray {our_ray} and Python "
            f"{our_python}.",
            hint=f"Both must be the same: pip install 'ray=={ray}', with Python {python}.",
        )
    if "exceeds the maximum size" in text:
        sizes = re.findall(r"[\d.]+ ?MiB", text)
        limit = f" {sizes[1]}" if len(sizes) > 1 else " less"
        return UsageError(
            f"The working folder is too large to be carried to the cluster: packed it has "
            f"{sizes[0] if sizes else 'more'}, and Ray takes{limit}.",
            hint=_LEAVE_OUT_HINT,
        )
    first = text.strip().partition("\n")[0].rstrip(".")
    if where == _HERE:
        return UsageError(f"Ray cannot be started here: {first}.", hint="`ray start --head` says more.")
    return UsageError(
        f"Ray at {where} cannot be used: {first}.",
        hint="HOST:PORT is for a machine of the cluster; from elsewhere it is ray://HOST:10001.",
    )


@contextlib.contextmanager
def _same_sigterm() -> Iterator[None]:
    """Ray takes the signal for itself, and would end this process without writing what is finished."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ray's C++ parts write to standard error whatever they are told, until they are connected."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # there may be none
            kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 2)
            os.dup2(nothing, 2)
            os.close(nothing)
        yield


def _task(work: Work) -> Callable[..., Any]:
    """The function of a task, made anew wherever it is used: it travels by value."""

    def task(
        errand: Errand, order: Order, shares: Mapping[str, tuple[int, int]], exports: Sequence[Any]
    ) -> Any:
        import ray

        # A machine that joined later is not among them.
        node = ray.get_runtime_context().get_node_id()
        at_once, memory = shares.get(node, (os.cpu_count() or 1, 0))
        errand = replace(errand, at_once=at_once, memory=memory)
        if exports:
            with contextlib.suppress(ray.exceptions.RayError):
                errand = replace(errand, exports=ray.get(exports[0]))
        outcome, made = work(errand, order)
        return (outcome, made) if errand.returns_exports else outcome

    return task


def _node_facts() -> Callable[[], NodeFacts]:
    def facts() -> NodeFacts:
        from analyzer.fleet.node import node_facts  # may be missing there, which is told

        return node_facts()

    return facts


def _folder_of_the_job() -> str:
    """The folder that ``ray job submit`` carried to all machines; empty outside of such a job."""
    try:
        job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    except ValueError:
        return ""
    if not (job.get("runtime_env") or {}).get("working_dir"):
        return ""
    here = Path.cwd()
    return next((str(path) for path in (here, *here.parents) if path.name.startswith("_ray_pkg_")), "")


def _roomiest(nodes: Sequence[_Node]) -> Mapping[str, str]:
    """The machine of the most memory, for jobs about no device."""
    return {max(nodes, key=lambda node: node.memory).id: ""} if nodes else {}


def _no_machine(device: str) -> FleetFailure:
    return FleetFailure(
        kind="killed",
        message=f"No machine that has {device or 'enough memory'} is left in the cluster.",
        hint="`--retry-failed` tries it again.",
    )


def _fault(job: Job, error: Any) -> Outcome:
    """What a task raised that is no failure of the model.

    Raises:
        UsageError: Its machine is none of ours.
    """
    cause = error.cause
    if isinstance(cause, OtherNodeError):
        raise UsageError(f"{cause}", hint=_SAME_HINT) from error
    message = f"This is a fault of analyze itself: {type(cause).__name__}: {_line(cause)}"
    return failed(job, FleetFailure(kind="fault", message=message, hint="Please report it."))


def _all_of(error: BaseException | None) -> str:
    """What an error and those behind it say."""
    texts = []
    while error is not None:
        texts.append(f"{error}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def _line(error: BaseException) -> str:
    """The last line of what an error says: Ray puts a traceback before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
