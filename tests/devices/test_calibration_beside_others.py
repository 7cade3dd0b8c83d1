"""A calibration that was disturbed is named, and what is predicted from it is less sure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.devices import catalogue
from analyzer.devices.calibration import taken_meanwhile
from analyzer.devices.device import Device
from analyzer.pipeline import build_record
from analyzer.prediction.cpu.ceilings import cpu_ceilings


def calibrated(busy: float = 0.0, wander: tuple[float, float] = (1.0, 1.0)) -> Device:
    base = next(iter(catalogue.cpus()))
    values = {"threads": 2.0, "cores": 2.0, "dispatch.t2": 1e-7, **({"busy": busy} if busy else {})}
    values |= {"wander.t1": wander[0], "wander.t2": wander[1]}
    return replace(base, calibration=values, origin="calibrated")


@pytest.mark.parametrize(("busy", "share"), [(0.0, 0.0), (0.1, 0.0), (1.0, 0.5), (3.0, 1.0)])
def test_the_share_of_the_cores_that_others_had(busy: float, share: float) -> None:
    assert taken_meanwhile(calibrated(busy).calibration) == share


def test_predictions_from_it_are_as_much_wider_as_cores_lacked() -> None:
    quiet, beside = (cpu_ceilings(calibrated(busy), "fp32").width for busy in (0.0, 1.5))
    assert beside == pytest.approx(1.75 * quiet)
    # 225 GFLOP/s on a quiet machine came out as 129: within it.
    assert beside > 225 / 129


def test_terminal_and_page_say_so() -> None:
    def said(busy: float) -> tuple[str, ...]:
        return build_record.describe(measured=None, timings_s={}, cached=False, cpu=calibrated(busy)).messages

    assert said(0.0) == ()
    assert "calibrated while other processes ran (1.5 of 2 cores)" in " ".join(said(1.5))


@pytest.mark.parametrize(("threads", "factor"), [(1, 1.2), (2, 1.4)])
def test_predictions_are_as_much_wider_as_the_machine_changed_meanwhile(threads: int, factor: float) -> None:
    """Two visits of one kernel differ by 1.26 and 1.47; by 1.05 they do on a steady machine too."""
    unsteady = calibrated(wander=(1.26, 1.47))
    quiet, beside = (cpu_ceilings(device, "fp32", threads).width for device in (calibrated(), unsteady))
    assert beside == pytest.approx(factor * quiet)
    assert cpu_ceilings(calibrated(wander=(1.04, 1.04)), "fp32", threads).width == quiet


def test_what_slows_others_and_the_machine_is_counted_once() -> None:
    quiet, beside = (
        cpu_ceilings(device, "fp32").width for device in (calibrated(), calibrated(1.0, (1.3, 1.3)))
    )
    assert beside == pytest.approx(1.5 * quiet)


def test_terminal_and_page_tell_an_unsteady_machine() -> None:
    def said(wander: float) -> str:
        device = calibrated(wander=(wander, 1.0))
        return " ".join(build_record.describe(measured=None, timings_s={}, cached=False, cpu=device).messages)

    assert said(1.1) == ""
    assert "while its speed changed (operators took 1.4 times as long seconds later)" in said(1.47)
    assert "too slow or too quick" in said(1.47)
