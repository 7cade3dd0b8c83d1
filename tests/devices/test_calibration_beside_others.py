"""A calibration that other processes disturbed is named, and what is predicted from it is less sure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.devices import catalogue
from analyzer.devices.calibration import taken_meanwhile
from analyzer.devices.device import Device
from analyzer.pipeline import environment
from analyzer.prediction import cpu as model


def calibrated(busy: float) -> Device:
    base = next(iter(catalogue.cpus()))
    values = {"threads": 2.0, "cores": 2.0, "dispatch.t2": 1e-7, **({"busy": busy} if busy else {})}
    return replace(base, calibration=values, origin="calibrated")


@pytest.mark.parametrize(("busy", "share"), [(0.0, 0.0), (0.1, 0.0), (1.0, 0.5), (3.0, 1.0)])
def test_the_share_of_the_cores_that_others_had(busy: float, share: float) -> None:
    assert taken_meanwhile(calibrated(busy).calibration) == share


def test_predictions_from_it_are_as_much_wider_as_cores_lacked() -> None:
    quiet, beside = (model.ceilings(calibrated(busy), "fp32").width for busy in (0.0, 1.5))
    assert beside == pytest.approx(1.75 * quiet)
    # 225 GFLOP/s on a quiet machine came out as 129: within it.
    assert beside > 225 / 129


def test_terminal_and_page_say_so() -> None:
    def said(busy: float) -> tuple[str, ...]:
        return environment.describe(measured=None, timings_s={}, cached=False, cpu=calibrated(busy)).messages

    assert said(0.0) == ()
    assert "calibrated while other processes ran beside it (1.5 of 2 cores)" in " ".join(said(1.5))
