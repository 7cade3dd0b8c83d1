"""The record of the GPU check: written after every entry, and what goes into it."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.measurement.request import Measurement


class Record:
    """The record on disk: rewritten after every entry."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path = path
        self._begin = time.monotonic()
        self._seconds = minutes * 60
        self.values: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "complete": False,
            "checks": {},
            "errors": {},
            "left_out": [],
            "seconds": {},
        }

    def left_s(self) -> float:
        """Seconds of the time limit that are left."""
        return self._seconds - (time.monotonic() - self._begin)

    def most_s(self) -> float:
        """Seconds that a part may take in a process of its own: one that hangs must leave time for others."""
        return max(5.0, min(max(120.0, self._seconds / 4), self.left_s()))

    def put(self, key: str, value: object) -> None:
        """One entry."""
        self.values[key] = value
        self.write()

    def check(self, name: str, holds: bool, detail: str) -> None:
        """Something that must hold."""
        self.values["checks"][name] = {"holds": bool(holds), "detail": detail}
        print(f"{'ok  ' if holds else 'FAIL'} {name}: {detail}", flush=True)
        self.write()

    def take_over(self, other: dict[str, Any]) -> None:
        """Entries of a part's own record."""
        for key, value in other.items():
            if key in ("checks", "errors"):
                self.values[key].update(value)
            elif key not in ("date", "complete", "left_out", "seconds"):
                self.values[key] = value
        self.write()

    def step(self, name: str, needed_s: float, work: Callable[[], object]) -> bool:
        """A step whose failure costs itself alone; left out where the time does not suffice.

        Returns whether it was done.
        """
        if self.left_s() < needed_s:
            self.leave_out(name, f"{self.left_s():.0f} s are left")
            return False
        start = time.monotonic()
        done = False
        try:
            work()
            done = True
        except Exception as error:
            message, hint = getattr(error, "message", None), getattr(error, "hint", None)
            said = f"{message} ({hint})" if message else traceback.format_exc()
            self.values["errors"][name] = said
            self.check(name, False, said.strip().splitlines()[-1])
        self.values["seconds"][name] = round(time.monotonic() - start, 2)
        self.write()
        return done

    def leave_out(self, name: str, reason: str) -> None:
        """Says that a step was not done, and keeps it."""
        self.values["left_out"].append(name)
        print(f"     {name}: left out, {reason}", flush=True)
        self.write()

    def write(self) -> None:
        """To disk, all or nothing."""
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.values, indent=1, default=str) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)


def adds_up(measured: Measurement, way: str) -> bool:
    """Whether operator times add up to the latency within 3 %."""
    wanted = measured.ways[way].value if way in measured.ways else measured.latency.value
    return bool(measured.nodes) and abs(sum(node.time.value for node in measured.nodes) / wanted - 1) < 0.03


def shares(measured: Measurement, way: str) -> str:
    """The sum against the latency, in words."""
    from analyzer.units import factor, seconds

    latency = measured.ways.get(way, measured.latency)
    total = sum(node.time.value for node in measured.nodes)
    return f"{seconds(total)} of {seconds(latency.value)}, factor {factor(measured.factor)}"


def summary(measured: Measurement) -> dict[str, Any]:
    """A measurement without its graph, as plain values."""
    names = ("factor", "residual_s", "bias_s", "load_s", "first_run_s", "arena_peak_bytes", "device_peak_bytes")
    return {
        **{name: getattr(measured, name) for name in (*names, "rss_peak_bytes", "busy", "messages")},
        "ways": {way: asdict(latency) for way, latency in measured.ways.items()},
        "environment": dict(measured.environment),
        "nodes": [asdict(node) for node in measured.nodes],
    }
