"""A step at batches that were not traced: the same figures as tracing it there, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from analyzer import prediction
from analyzer.cli import run_command_line
from analyzer.costs import count
from analyzer.devices.catalogue import device
from analyzer.figures import total
from analyzer.graph import DEFAULT_DOMAIN
from analyzer.loading.loaded import Loaded
from analyzer.loading.training.batch_interpolation import DifferentError, bound
from analyzer.options import Options
from analyzer.pipeline import exports
from analyzer.pipeline.exports import StepAtAnyBatch, loaded_at, prepared_steps
from analyzer.pipeline.machine import memory_of
from analyzer.pipeline.options import make_options
from analyzer.pipeline.prepared import PreparedGraph, prepare

OPTIONS = make_options(cache=False)


def prepared_graphs(
    loaded: Loaded, wanted: Sequence[int] = (), options: Options = OPTIONS
) -> tuple[dict[int, PreparedGraph], StepAtAnyBatch | None]:
    return prepared_steps(loaded, prepared_of(loaded), options, wanted, lambda *_: None)


def prepared_of(loaded: Loaded) -> PreparedGraph:
    prepared = prepare(loaded.graph())
    return replace(prepared, step_peak=memory_of(loaded, prepared.graph).peak_bytes)


def figures(prepared: PreparedGraph) -> tuple[tuple[int | None, ...], list[float]]:
    """What the decision reads of a step: work, bytes, memory and times on both sides."""
    whole = prepared.table.total
    times = [
        total(prediction.predict(work, device(name), precision="fp32")).value
        for work, name in ((prepared.cpu_work, "epyc-9654"), (prepared.cuda_work, "l4"))
    ]
    return (whole.flops, whole.macs, whole.bytes_read, whole.bytes_written, prepared.step_peak), times


@pytest.mark.parametrize("name", ["mlp", "convnet", "transformer", "lstm", "upward"])
def test_figures_are_those_of_tracing_at_that_batch(
    name: str, step_of: Callable[..., Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = step_of(name)
    # A probe does not hang on how much must be confirmed: it is traced once for both.
    trace = exports._in_short
    probe = cache(lambda batch: trace(loaded, batch, OPTIONS))
    monkeypatch.setattr(exports, "_in_short", lambda _, batch, __: probe(batch))
    _, confirmed = prepared_graphs(loaded)
    # A large step is not confirmed by a third trace, which would take long.
    monkeypatch.setattr("analyzer.pipeline.exports._CONFIRMED_UP_TO", 0)
    _, unconfirmed = prepared_graphs(loaded)
    assert confirmed is not None
    assert unconfirmed is not None
    for batch in (2, 300):  # between two that are probed, and beyond
        other = loaded_at(loaded, batch, OPTIONS)
        assert other is not None
        expected, expected_times = figures(prepared_of(other))
        for between in (confirmed, unconfirmed):
            work, times = figures(between(batch))
            assert work == expected
            assert times == pytest.approx(expected_times, rel=1e-9)
            # A table with a row for each example keeps its size and not its elements, which no count needs.
            assert count(between(batch).graph).total.basis == "exact"


def test_few_batches_are_traced_and_all_that_are_wanted_known(
    step_of: Callable[..., Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = []
    monkeypatch.setattr("analyzer.pipeline.exports.loaded_at", lambda _, batch, __: whole.append(batch))
    found, _ = prepared_graphs(step_of("mlp"), wanted=(1, 2, 4096))
    assert sorted(found) == [1, 2, 6, 4096]
    assert not whole


def test_a_step_at_another_batch_is_of_the_options_that_it_is_asked_with(
    step_of: Callable[..., Loaded],
) -> None:
    loaded = step_of("mlp")
    opsets = [
        loaded_at(loaded, 9, make_options(cache=False, opset=opset)).graph().opsets[DEFAULT_DOMAIN]
        for opset in (18, 20)
    ]
    assert opsets == [18, 20]


def test_a_batch_that_was_traced_to_be_run_is_not_traced_again(
    step_of: Callable[..., Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = step_of(SIMILAR)
    options = make_options(cache=False, batch=[6, 9])
    traced = {9: loaded_at(loaded, 9, options)}
    again = []

    def trace(_: Any, batch: int, __: Any) -> None:
        again.append(batch)

    monkeypatch.setattr("analyzer.pipeline.exports.loaded_at", trace)
    found, _ = prepared_steps(loaded, prepared_of(loaded), options, (), lambda *_: None, traced)
    assert 9 in found
    assert 9 not in again


SIMILAR = """
    class Similar(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 6)

        def forward(self, x):
            y = self.first(x)
            return (y @ y.T).reshape(-1, 1)

    def example_inputs(batch=6):
        return (torch.randn(batch, 4),)
    """


@pytest.mark.parametrize("confirmed_up_to", [0, 400])
def test_a_size_that_grows_with_the_square_of_the_batch_is_not_made_up(
    confirmed_up_to: int, step_of: Callable[..., Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.pipeline.exports._CONFIRMED_UP_TO", confirmed_up_to)
    found, between = prepared_graphs(step_of(SIMILAR), wanted=(2, 64))
    assert between is None
    assert 64 not in found  # nobody asked for it, and it cannot be known without tracing


def test_a_size_that_would_be_a_fraction_is_refused(step_of: Callable[..., Loaded]) -> None:
    model = "mlp"
    first, second = step_of(model, batch=4).graph(), step_of(model, batch=6).graph()
    with pytest.raises(DifferentError):  # from 4 to 6 examples in 3 more: the rows would grow by 2/3
        bound(first, 4, second, 7)


def test_the_largest_batch_fits_and_the_next_one_does_not(step_of: Callable[..., Loaded]) -> None:
    from analyzer.pipeline.training_summary import _largest_exactly

    loaded = step_of("convnet")
    _, between = prepared_graphs(loaded)
    gpu = device("l4")
    (found,) = {_largest_exactly(between.peak, gpu, guess) for guess in (1, 1000, 10**7)}
    peaks = [
        memory_of(other, other.graph()).peak_bytes
        for batch in (found, found + 1)
        if (other := loaded_at(loaded, batch, OPTIONS))
    ]
    assert peaks[0] <= gpu.memory_bytes - 300_000_000 < peaks[1]


def test_each_batch_that_is_asked_for_is_measured_and_the_gradients_compared(
    model_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    given = [str(model_file("mlp")), "--training", "--batch", "4,9", "--runs", "3", "--time-budget", "0.3"]
    out = tmp_path / "out.json"
    assert run_command_line([*given, "--gpu", "none", "--format", "json", "--output", str(out), "--quiet"]) == 0
    record = json.loads(out.read_text())
    assert record["plans"][0]["origin"] == "measured"
    assert record["training"]["gradient_error"] < 1e-5
    rows = {row["batch"]: row["plans"]["cpu"] for row in record["sweep"]}
    assert {batch for batch, plan in rows.items() if plan["origin"] == "measured"} == {4, 9}
    assert rows[2]["origin"] == "predicted"
