"""What a step of training, a request and a service gain by a change: the difference of two records."""

import textwrap
from pathlib import Path
from typing import Any

import onnx
import pytest

from analyzer import Analysis, analyze, analyze_generation, plan_capacity
from analyzer.record.analysis import Opportunity
from analyzer.record.generation import GenerationResult

LLAMA = Path(__file__).parents[1] / "golden" / "inputs" / "llama"
OWN: dict[str, Any] = {"gpu": "h100", "cpu": "epyc-9654", "batch": 8, "run": False}


def by_code(analysis: Analysis) -> dict[str, Opportunity]:
    return {one.code: one for one in analysis.opportunities}


def generated(**options: Any) -> Analysis:
    return analyze_generation(LLAMA, **{**OWN, **options})


def request(analysis: Analysis) -> GenerationResult:
    assert analysis.generation is not None
    return analysis.generation


@pytest.fixture(scope="module")
def asked() -> Analysis:
    return generated()


@pytest.mark.parametrize(
    ("code", "change"), [("launch", {"launch": "graph"}), ("batch", {"batch": 128}), ("more-gpus", {"gpus": 2})]
)
def test_a_request_gains_what_another_question_takes_less(
    asked: Analysis, code: str, change: dict[str, Any]
) -> None:
    found = by_code(asked)[code]
    ((option, value),) = change.items()
    assert f" --{option} {value}" in found.command
    before, after = request(asked), request(generated(**change))
    # Of as many sequences as now.
    left = after.request_s * before.batch / after.batch
    assert found.gain_s == pytest.approx(before.request_s - left, rel=1e-9)
    assert found.gain_low_s is not None
    assert 0 < found.gain_low_s < before.request_s - left


def test_weights_whose_gain_may_be_none_are_not_offered(asked: Analysis) -> None:
    """In int4 a request takes less; products by packed weights may take 2.4 times as long as predicted."""
    assert request(generated(weights="int4")).request_s < 0.8 * request(asked).request_s
    assert "weights" not in by_code(asked)


def test_of_more_gpus_than_it_takes_fewer_save_dollars(asked: Analysis) -> None:
    two = generated(gpus=2)
    found = by_code(two)["fewer-gpus"]
    one, usd = request(asked).usd_per_million_tokens, request(two).usd_per_million_tokens
    assert one is not None
    assert usd is not None
    assert (found.gain_s, found.gain_usd_per_million) == (None, pytest.approx(usd - one, rel=1e-9))
    assert found.gain_usd_low_per_million is not None
    assert 0 < found.gain_usd_low_per_million < usd - one


def test_with_limits_the_batch_is_searched_and_none_is_offered() -> None:
    found = by_code(generated(batch=None, ttft="1s", tpot="30ms"))
    assert {"batch", "more-gpus", "fewer-gpus"}.isdisjoint(found)


WIDE = """
    import torch
    from torch import nn

    def build_model():
        return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(3)))

    def example_inputs(batch=8192):
        return (torch.randn(batch, 4096),)
    """


def test_a_step_gains_by_mixed_precision_what_its_table_says(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    path.write_text(textwrap.dedent(WIDE))
    found = analyze(path, training=True, gpu="a100", cpu="epyc-9654", run=False)
    assert found.training is not None
    steps = {one.precision: one.step_s for one in found.training.precisions}
    offered = by_code(found)["precision"]
    assert offered.gain_s == pytest.approx(steps["tf32"] - steps["mixed (bf16)"], rel=1e-6)
    assert (offered.command, "torch.autocast to bf16" in offered.title) == ("", True)


def test_a_service_gains_by_free_batches_what_another_plan_costs_less(wide_model: onnx.ModelProto) -> None:
    service: dict[str, Any] = {"rate": 100_000, "p99": "50ms", "gpu": "l4", "cpu": "epyc-9654", "run": False}
    single, free = plan_capacity(wide_model, **service, max_batch=1), plan_capacity(wide_model, **service)
    found = by_code(single)["batching"]
    assert single.answer is not None
    assert free.answer is not None
    assert (single.answer.instance, found.gain_s) == (free.answer.instance, None)
    before, after = single.answer.usd_per_million, free.answer.usd_per_million
    assert before is not None
    assert after is not None
    assert found.gain_usd_per_million == pytest.approx(before - after, rel=1e-6)
    assert "batching" not in by_code(free)
