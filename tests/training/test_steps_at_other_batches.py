"""A step at batches that were not traced: the same figures as tracing it there, or nothing at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer import prediction
from analyzer.cli import run_command_line
from analyzer.costs import count
from analyzer.devices.catalogue import device
from analyzer.loading.training.batch_interpolation import DifferentError, bound
from analyzer.pipeline.options import make_options
from analyzer.pipeline.prepared import prepare
from analyzer.pipeline.training_batches import loaded_at, step_scenes
from analyzer.pipeline.training_summary import memory_of
from analyzer.prediction.estimate import total

OPTIONS = make_options(cache=False)


def scenes(loaded: Any, wanted: Any = (), options: Any = OPTIONS) -> Any:
    return step_scenes(loaded, scene_of(loaded), options, wanted, lambda *_: None)


def scene_of(loaded: Any) -> Any:
    scene = prepare(loaded.graph())
    return replace(scene, step_peak=memory_of(loaded, scene.graph).peak)


def figures(scene: Any) -> Any:
    """What the decision reads of a step: work, bytes, memory and times on both sides."""
    whole = scene.table.total
    times = [
        total(prediction.predict(work, device(name), precision="fp32")).time_s
        for work, name in ((scene.cpu_work, "epyc-9654"), (scene.cuda_work, "l4"))
    ]
    return (whole.flops, whole.macs, whole.bytes_read, whole.bytes_written, scene.step_peak), times


@pytest.mark.parametrize("name", ["mlp", "convnet", "transformer", "lstm", "upward"])
@pytest.mark.parametrize("large", [False, True])
def test_figures_are_those_of_tracing_at_that_batch(
    name: Any, large: Any, step_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:  # where a third trace would take long
        monkeypatch.setattr("analyzer.pipeline.training_batches._CONFIRMED_UP_TO", 0)
    loaded = step_of(name)
    _, between = scenes(loaded)
    assert between is not None
    for batch in (2, 23, 64, 300):
        other = loaded_at(loaded, batch, OPTIONS)
        expected, expected_times = figures(scene_of(other))
        found, times = figures(between(batch))
        assert found == expected
        assert times == pytest.approx(expected_times, rel=1e-9)


def test_few_batches_are_traced_and_all_that_are_wanted_known(step_of: Any) -> None:
    loaded = step_of("mlp")
    found, _ = scenes(loaded, wanted=(1, 2, 4096))
    assert sorted(found) == [1, 2, 6, 4096]
    assert not loaded.retraced  # none as a whole


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
    confirmed_up_to: Any, step_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.pipeline.training_batches._CONFIRMED_UP_TO", confirmed_up_to)
    found, between = scenes(step_of(SIMILAR), wanted=(2, 64))
    assert between is None
    assert 64 not in found  # nobody asked for it, and it cannot be known without tracing


def test_a_size_that_would_be_a_fraction_is_refused(step_of: Any) -> None:
    model = "mlp"
    first, second = step_of(model, batch=4).graph(), step_of(model, batch=6).graph()
    with pytest.raises(DifferentError):  # from 4 to 6 examples in 3 more: the rows would grow by 2/3
        bound(first, 4, second, 7)


def test_the_largest_batch_fits_and_the_next_one_does_not(step_of: Any) -> None:
    from analyzer.pipeline.training_summary import _largest_exactly

    loaded = step_of("convnet")
    _, between = scenes(loaded)
    gpu = device("l4")
    for guess in (1, 1000, 10**7):
        found = _largest_exactly(between.peak, gpu, guess)
        peaks = [
            memory_of(other, other.graph()).peak
            for batch in (found, found + 1)
            if (other := loaded_at(loaded, batch, OPTIONS))
        ]
        assert peaks[0] <= gpu.memory_bytes < peaks[1]


def test_each_batch_that_is_asked_for_is_measured(
    model_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    given = [str(model_file("mlp")), "--training", "--batch", "4,9", "--runs", "3", "--time-budget", "1"]
    out = tmp_path / "out.json"
    assert run_command_line([*given, "--gpu", "none", "--format", "json", "--output", str(out), "--quiet"]) == 0
    rows = {row["batch"]: row["plans"]["cpu"] for row in json.loads(out.read_text())["sweep"]}
    assert {batch for batch, plan in rows.items() if plan["origin"] == "measured"} == {4, 9}
    assert rows[2]["origin"] == "predicted"


def test_costs_at_a_batch_need_no_constants_that_grow(step_of: Any) -> None:
    """A table with a row for each example keeps its size and not its elements."""
    loaded = step_of("transformer")
    _, between = scenes(loaded)
    assert count(between(64).graph).total.basis == "exact"
