"""A fixed number of mutated files, each answered in time and memory with a result or one clear error.

``make fuzz`` gives the program others for an hour; how a case is run again stands in ``run.py``.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import pytest
from faults import Outcome, faults, of_the_figures
from fuzz_case import KINDS, MODEL, Case
from mutate_graphs import graph_case
from mutate_records import base_records
from run import Tally, keep
from runner import Runner
from seed_models import OUTPUT, external_weights
from shrink import shrunk

# So many that all take a quarter of a minute; `make fuzz` tries others for as long as one likes.
CASES = {"graphs": 80, "decoders": 15, "records": 30, "settings": 30, "cache": 12}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as made:
        yield made


@pytest.mark.parametrize("kind", CASES)
def test_no_mutated_file_is_answered_with_a_fault(kind: str, runner: Runner) -> None:
    tally = Tally()
    for seed in range(CASES[kind]):
        case = KINDS[kind](seed)
        outcomes = runner.run(case)
        if reasons := tally.add(case, outcomes):
            keep(case, outcomes, reasons, OUTPUT / "failures" / f"{kind}-{seed}")
    assert not tally.reasons, f"{tally.table()}\nThe cases are kept in {OUTPUT / 'failures'}."
    # Were all refused at once, nothing behind the reading would be tried.
    answered = tally.statuses[kind]["0"] + tally.statuses[kind]["1"]
    assert answered > 0.15 * CASES[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_makes_the_same_case_again(kind: str) -> None:
    one, other = KINDS[kind](7), KINDS[kind](7)
    assert (one.files, one.steps) == (other.files, other.steps)


def test_what_an_ascii_stream_gets_hangs_on_no_command_before_it() -> None:
    model = external_weights()  # so small that times are told in millionths of a second
    model.graph.node[-1].op_type = "EyeLike"
    content = model.SerializeToString()

    def case(encoding: str) -> Case:
        steps = [("check", MODEL, "--format", "json", "--fail-on", "never")]
        return Case(kind="graphs", seed=0, files={MODEL: content}, steps=steps, encoding=encoding)

    with Runner() as first, Runner() as second:
        (alone,) = first.run(case("ascii"))
        second.run(case("utf-8"))
        (after_another,) = second.run(case("ascii"))
    assert alone.status == after_another.status == 0
    signs = [outcome.stdout.count("\N{MICRO SIGN}s".encode()) for outcome in (alone, after_another)]
    assert signs[0] == signs[1] > 0
    assert faults(alone) == faults(after_another) == []


# The harness itself: one that cannot fail would be worth nothing.


def planted(fault: str, runner: Runner, **of_case: Any) -> list[str]:
    """What the harness says of a command that does this on purpose."""
    case = Case(kind="graphs", seed=0, files={MODEL: b"x"}, steps=[("plant", fault)], **of_case)
    (outcome,) = runner.run(case)
    return faults(outcome, seconds=runner.seconds, memory=runner.memory)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("crash", "signal SIGSEGV: worker.py"),
        ("traceback", "traceback with status 1: KeyError at nowhere known"),
        ("3", "status 3: unknown"),
        ("2", "status 2 without an error message"),
        ("130", "status 130"),
        ("::error::canary", "a workflow command on standard output"),
        ("\n  ::stop-commands::canary", "a workflow command on standard output"),
        ("a\x1b[31mb", r"a raw '\x1b' on standard output"),
        ("a\x9bb", r"a raw '\x9b' on standard output"),
    ],
)
def test_a_planted_fault_is_seen(fault: str, reason: str, runner: Runner) -> None:
    assert any(found.startswith(reason) for found in planted(fault, runner))


def test_what_a_command_leaves_behind_is_seen(runner: Runner) -> None:
    assert planted("file", runner) == [
        "changed the file model.onnx", "made outside outside the folder", "left left in the temporary folder",
    ]  # fmt: skip


def test_a_hang_is_ended_and_seen() -> None:
    with Runner(seconds=0.5) as impatient:
        (reason,) = planted("hang", impatient)
        assert reason.startswith("hangs: worker.py")
        assert reason.endswith(" planted")
        assert planted("0", impatient) == []  # the next case has a worker of its own


def test_too_much_memory_is_ended_and_seen() -> None:
    with Runner(memory=300_000_000) as narrow:
        (reason,) = planted("memory", narrow)
        assert reason.startswith("memory: worker.py")


def test_nothing_is_said_of_a_command_that_is_fine(runner: Runner) -> None:
    assert planted("0", runner) == []
    assert planted("1", runner) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda record: record["operators"][0].update(flops=-1), "operators.flops is negative"),
        (lambda record: record["plans"][0].update(latency_s=float("inf")), "plans.latency_s is not finite"),
        (lambda record: record["sweep"][0].update(batch=float("nan")), "sweep.batch is not finite"),
        (lambda record: record["totals"].update(macs=7), "totals.macs is no sum"),
        (
            lambda record: record["groups"][0].update(time_s=1.0),
            "operators' times on cpu are not those of its groups",
        ),
        (lambda record: record["groups"][0].update(members=[1, 1]), "an operator is in two groups of cpu"),
        (
            lambda record: record["plans"][0]["transfers"].update(bytes=1, items=[{"bytes": 2}]),
            "transfers.bytes is no sum",
        ),
        (lambda record: record["plans"][0].update(low_s=1e9), "a time of plans is outside its interval"),
        (
            lambda record: record["plans"][2].update(latency_s=1.0, high_s=1.0),
            "the best plan is slower than another",
        ),
    ],
)
def test_a_figure_that_cannot_be_is_seen(change: Callable[[Any], None], reason: str) -> None:
    record = json.loads(base_records()[0])
    assert of_the_figures(record) == []
    hostile = copy.deepcopy(record)
    change(hostile)
    assert reason in of_the_figures(hostile)


def test_json_that_is_none_is_seen() -> None:
    outcome = Outcome(arguments=("check", MODEL, "--format", "json"), status=0, stdout=b'{"a": NaN}')
    assert faults(outcome) == ["no valid JSON: Out of range float values are not JSON c"]


def test_a_failing_model_is_made_smaller(runner: Runner) -> None:
    """A fault on purpose stays whatever is taken out: nothing but an empty model is left."""
    case = Case(kind="graphs", seed=0, files={MODEL: graph_case(1)}, steps=[("plant", "crash")])
    content, reason = shrunk(case, runner, tries=12)
    assert reason.startswith("signal SIGSEGV")
    assert len(content) < len(graph_case(1))
    onnx.ModelProto.FromString(content)
