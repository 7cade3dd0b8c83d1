"""A model of a fleet as it was named: on the command line, in a folder, by a pattern or in a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.record.fleet import FleetQuestion, Today, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of a model before anything is read; ``reference`` is MODEL as ``analyze`` takes it.

    Attributes:
        name: Its own in the fleet; empty for the one that its reports have.
        question: Which command answers; None for what its files say.
        options: By long option, as they are written on the command line, from the manifest.
        defaults: The same, for those models whose question takes them.
        where: What named it, for messages.
    """

    reference: str
    name: str = ""
    question: FleetQuestion | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    tags: tuple[str, ...] = ()
    traffic: Traffic | None = None
    today: Today | None = None
    where: str = ""
