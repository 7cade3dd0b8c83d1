"""Lets the judge's modules import each other, and builds the stand-in libraries once per test session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import court
import standins


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[court.Judge]:
    """The real CUDA provider with stand-in libraries; skips where it cannot be had."""
    reason = standins.missing()
    if reason:
        pytest.skip(reason)
    folder = standins.build(tmp_path_factory.mktemp("judge"))
    with court.Judge(folder) as judge:
        yield judge
