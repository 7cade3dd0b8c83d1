"""Models that once were a fault, by hand and as small as can be: answered now, or refused in one line."""

from collections.abc import Callable, Iterator

import onnx
import pytest
from faults import faults
from found.graphs import FOUND
from fuzz_case import MODEL, Case
from runner import Runner


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as made:
        yield made


@pytest.mark.parametrize("build", FOUND, ids=lambda build: build.__name__)
def test_a_model_that_was_a_fault_is_answered(
    build: Callable[[], onnx.ModelProto | bytes], runner: Runner
) -> None:
    made = build()
    content = made if isinstance(made, bytes) else made.SerializeToString()
    steps = [
        ("check", MODEL, "--format", "json", "--fail-on", "never"),
        ("run", MODEL, "--no-run", "--quiet", "--format", "json,html,text,csv", "--output", "out/"),
        ("check", MODEL, "--format", "github", "--fail-on", "never"),
        ("compare", "out/model.json", "out/model.json"),
        ("check", MODEL, "--opset", "18", "--fail-on", "never"),
    ]
    outcomes = runner.run(Case(kind="graphs", seed=0, files={MODEL: content}, steps=steps))
    assert [fault for outcome in outcomes for fault in faults(outcome)] == []
