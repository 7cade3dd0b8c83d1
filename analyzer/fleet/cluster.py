"""Ray: a cluster that is there, or one of this machine alone; here and in ``connection`` alone Ray is known.

A task is one model. Ray places it by what it needs (a core and memory; for a measurement the whole of a
machine that has the device) and gives it to another machine where one is lost. Inside of the task the same slot
works on it as on one machine alone, so that rows and messages are the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from analyzer import __version__
from analyzer.errors import UsageError
from analyzer.fleet.connection import LEAVE_OUT_HINT, Connection
from analyzer.fleet.job import Job, Outcome, failed, without_lack_of_memory
from analyzer.fleet.local import foreseen_bytes, need_python
from analyzer.fleet.node import (
    Carried,
    Errand,
    NodeFacts,
    Order,
    OtherNodeError,
    carried,
    files_of,
    lacking,
    model_path,
    program_facts,
    require_inside,
    require_same_program,
    sight,
    work_on_node,
)
from analyzer.fleet.store import NOTES_FOLDER
from analyzer.fleet.work import OUT_OF_MEMORY
from analyzer.progress import StageProgress
from analyzer.record.fleet import FleetFailure
from analyzer.text import first_few

Work = Callable[[Errand, Order], bytes]

# Tasks that Ray has for each core: enough that none waits, few enough that the driver holds little.
_AHEAD, _FEWEST_AHEAD = 4, 16
_LOOK_AGAIN_S = 5.0
# Of what is lost with its worker or its machine.
_RETRIES = 3
_PAUSE_S = 1.0
# The first process on a machine imports, from a slow disk perhaps.
_ANSWER_S = 120.0

_SAME_HINT = (
    f"Install the same on all machines: pip install 'onnx-analyzer[ray]=={__version__}', and the same PyTorch."
)
_AGAIN_HINT = "Finished models are saved: the same command goes on with the rest."
_LOST = FleetFailure(
    kind="killed",
    message="The machine or the worker that had it was lost, at each of several tries.",
    hint="`--retry-failed` tries it again.",
)


class _Node(NamedTuple):
    """A machine of the cluster, by Ray's name and its own, and what it gives to tasks; memory in bytes."""

    id: str
    name: str
    cpus: float
    gpus: float
    memory: int


class _Sent(NamedTuple):
    """A task that Ray has; ``node`` is the machine that it has for itself, empty where it shares one."""

    job: Job
    node: str
    errand: Errand
    options: Mapping[str, Any]


class RayCluster:
    """The machines of a cluster: ``jobs`` models at once, or as many as fit, each ``timeout_s`` at most.

    ``say`` is called with the dashboard's address; ``work`` is what a machine does with a model.

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
        work: Work = work_on_node,
    ) -> None:
        self._jobs = jobs
        self._timeout_s = timeout_s
        self._work = work
        self._sent: dict[Any, _Sent] = {}
        self._shares: Mapping[str, tuple[int, int]] = {}
        self._order = Order(python=False, timeout_s=timeout_s)
        self._ahead, self._looked = 1, -_LOOK_AGAIN_S
        self._connection = Connection(on, jobs)
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
        """Work on models and yield each as it is finished.

        What ran out of memory beside others is tried once more on a machine of its own; what measures has one.

        Raises:
            UsageError: The cluster cannot get at their files, or is gone.
        """
        if not jobs:
            return
        self._order = self._prepared(jobs)
        together = [job for job in jobs if not job.device]
        again: list[Job] = []
        finished = self._together(together)
        yield from without_lack_of_memory(finished, again) if len(together) > 1 else finished
        yield from self._alone(again, _roomiest)
        yield from self._alone([job for job in jobs if job.device], self._measured)
        with contextlib.suppress(Exception):  # the answer is there, whatever has become of the cluster
            self.facts = self._facts()

    def close(self) -> None:
        """End running work, and the cluster where it was started here."""
        with contextlib.suppress(Exception):  # one that is gone cannot be told to stop
            for reference in self._sent:
                self._ray.cancel(reference, force=True)
        self._sent.clear()
        self._connection.close()

    def _together(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Work on models side by side, wherever Ray finds room."""
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
        """Work on jobs that each have a machine for themselves, one with the job's device.

        ``devices_of`` says the device of each machine that may be taken.
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
        """Return how many tasks Ray has at once; looked at again as machines come and go."""
        if self._jobs is not None:
            return self._jobs
        if time.monotonic() - self._looked >= _LOOK_AGAIN_S:
            self._looked = time.monotonic()
            cores = sum(node.cpus for node in self._nodes())
            self._ahead = max(_FEWEST_AHEAD, int(_AHEAD * cores))
        return self._ahead

    def _send(self, job: Job, *, node: str = "", **options: Any) -> None:
        path = model_path(job) or ""
        seen_there = path and not self._connection.started and self._order.carried is None
        errand = Errand(job=msgspec.msgpack.encode(job), path=path, sight=sight((path,)) if seen_there else "")
        shares = {node: (1, self._shares.get(node, (1, 0))[1])} if node else self._shares
        reference = self._task.options(**options).remote(errand, self._order, shares)
        self._sent[reference] = _Sent(job, node, errand, options)

    def _next(self) -> tuple[Job, Outcome | None]:
        """Return the next job that is finished; without an outcome where it was lost.

        Raises:
            UsageError: The cluster is gone, or a machine is none of ours.
        """
        from ray import exceptions

        try:
            (reference,), _ = self._ray.wait(list(self._sent), num_returns=1)
            sent = self._sent.pop(reference)
            return sent.job, msgspec.msgpack.decode(self._ray.get(reference), type=Outcome)
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
                f"A machine cannot unpack the working folder: {_line(error)}", hint=LEAVE_OUT_HINT
            ) from error
        except exceptions.RayError:
            return sent.job, None
        except ConnectionError as error:
            raise UsageError(
                f"The connection to Ray at {self._connection.told} is lost.", hint=_AGAIN_HINT
            ) from error

    def _prepared(self, jobs: Sequence[Job]) -> Order:
        """Return what all jobs share; files that machines do not see are copied to them first."""
        self._shares = {node.id: (int(node.cpus), node.memory) for node in self._nodes()}
        python = need_python(jobs)
        if self._connection.started:
            return Order(python=python, timeout_s=self._timeout_s)
        paths = sorted({path for job in jobs for path in files_of(job)})
        folder_facts = self._order.carried
        if folder_facts is None:
            ours = sight(paths, neighbours=True)
            # By value: what is asked of a machine is no part of the package there.
            seen = self._replies(lambda: sight(paths, neighbours=True))
            if any(other != ours for other in seen.values()):
                folder_facts = self._carry(jobs)
        if folder_facts is not None:
            require_inside(jobs, folder_facts.folder)
            self._require_carried(paths, folder_facts)
        return Order(python=python, timeout_s=self._timeout_s, program=program_facts(), carried=folder_facts)

    def _carry(self, jobs: Sequence[Job]) -> Carried:
        """Have Ray carry the working folder; in a job of Ray's it has done so already."""
        folder = _folder_of_the_job() or jobs[0].folder
        require_inside(jobs, folder)
        folder_facts = carried(folder, notes=NOTES_FOLDER)
        if not _folder_of_the_job():
            self._connection.carry(folder_facts)
            self._task = self._ray.remote(_task(self._work))
        return folder_facts

    def _require_carried(self, paths: Sequence[str], folder_facts: Carried) -> None:
        from ray import exceptions

        try:
            names = self._ray.get(
                self._ray.remote(lambda: lacking(paths, folder_facts)).options(num_cpus=0).remote()
            )
        except exceptions.RayError as error:
            raise UsageError(
                f"The cluster cannot unpack the working folder: {_line(error)}", hint=LEAVE_OUT_HINT
            ) from error
        if names:
            raise UsageError(
                f"These files were not carried to the cluster: {first_few(names)}.",
                hint=".gitignore or .rayignore leaves them out; with RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1 the "
                "former counts no more.",
            )

    def _facts_of_nodes(self) -> Mapping[str, NodeFacts]:
        """Return the facts of machines, by Ray's name.

        Raises:
            UsageError: One has another version of the program, or none.
        """

        def facts_there() -> NodeFacts:
            # Imported there, where the package may be missing.
            from analyzer.fleet.node import node_facts

            return node_facts()

        result: dict[str, NodeFacts] = dict(self._replies(facts_there))
        for node in self._nodes():
            if node.id in result and not node.gpus:  # not ours to use
                result[node.id] = replace(result[node.id], gpu="")
        if not self._connection.started:
            names = {node.id: node.name for node in self._nodes()}
            for name, facts in result.items():
                try:
                    require_same_program(program_facts(), facts.program, names.get(name, name))
                except OtherNodeError as error:
                    raise UsageError(f"{error}", hint=_SAME_HINT) from error
        return result

    def _replies(self, question: Callable[[], Any]) -> Mapping[str, Any]:
        """Return answers of all machines, by Ray's name; one that is lost meanwhile has none."""
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
        """Return the device that each machine measures: its GPU, else its CPU."""
        known = {node.id: self._found[node.id] for node in nodes if node.id in self._found}
        return {name: facts.gpu or facts.cpu for name, facts in known.items()}

    def _nodes(self) -> list[_Node]:
        """Return machines that are alive and take tasks."""
        nodes = []
        for node in self._ray.nodes():
            resources = node["Resources"]
            if node["Alive"] and resources.get("CPU", 0) >= 1:
                gpus, memory = resources.get("GPU", 0), int(resources.get("memory", 0))
                name = node["NodeManagerHostname"]
                nodes.append(_Node(node["NodeID"], name, resources["CPU"], gpus, memory))
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


def _task(work: Work) -> Callable[..., Any]:
    """Return the function of a task, made anew wherever it is used: it travels by value."""

    def task(errand: Errand, order: Order, shares: Mapping[str, tuple[int, int]]) -> bytes:
        import ray

        # A machine that joined later is not among them.
        node = ray.get_runtime_context().get_node_id()
        at_once, memory = shares.get(node, (os.cpu_count() or 1, 0))
        return work(replace(errand, at_once=at_once, memory=memory), order)

    return task


def _folder_of_the_job() -> str:
    """Return the folder that ``ray job submit`` carried to all machines; empty outside of such a job."""
    try:
        job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    except ValueError:
        return ""
    if not (job.get("runtime_env") or {}).get("working_dir"):
        return ""
    here = Path.cwd()
    return next((str(path) for path in (here, *here.parents) if path.name.startswith("_ray_pkg_")), "")


def _roomiest(nodes: Sequence[_Node]) -> Mapping[str, str]:
    """Return the machine of the most memory, for jobs about no device."""
    return {max(nodes, key=lambda node: node.memory).id: ""} if nodes else {}


def _no_machine(device: str) -> FleetFailure:
    return FleetFailure(
        kind="killed",
        message=f"No machine that has {device or 'enough memory'} is left in the cluster.",
        hint="`--retry-failed` tries it again.",
    )


def _fault(job: Job, error: Any) -> Outcome:
    """Return the outcome of an exception that is no failure of the model.

    Raises:
        UsageError: Its machine is none of ours.
    """
    cause = error.cause
    if isinstance(cause, OtherNodeError):
        raise UsageError(f"{cause}", hint=_SAME_HINT) from error
    message = f"This is a fault of analyze itself: {type(cause).__name__}: {_line(cause)}"
    return failed(job, FleetFailure(kind="fault", message=message, hint="Please report it."))


def _line(error: BaseException) -> str:
    """Return the last line of what an error says: Ray puts a traceback before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
