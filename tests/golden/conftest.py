"""Let the tests of this folder import what lies in it, and take ``--update``."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the snapshots of tests/golden anew")
