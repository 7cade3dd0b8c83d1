"""Makes this folder's models, and the judge's stand-in libraries, importable by the tests beside it."""

import sys
from pathlib import Path

import pytest

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "judge"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def stand_in_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of libraries that stand in for CUDA's; see ``tests/judge/standins.c``."""
    import standins

    missing = standins.missing()
    if missing:
        pytest.skip(missing)
    return standins.build(tmp_path_factory.mktemp("standins"))
