"""The recipe of the image: `make lint` reads its style, these tests what it needs of the repository."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "docs/how-to/container/Dockerfile").read_text(encoding="utf-8")
# Without comments, a command on one line.
STAGES = re.split(r"(?m)^(?=FROM )", re.sub(r"(?m)^#.*\n|\\\n", "", RECIPE))[1:]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_package_is_built_from_what_the_image_copies(tmp_path: Path) -> None:
    for sources, target in re.findall(r"(?m)^COPY (.+) (\S+)$", STAGES[0]):
        for name in sources.split():
            place = tmp_path / target.lstrip("/")
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(tmp_path / "src")],
        check=True,
        capture_output=True,
    )
    assert len(list((tmp_path / "src/dist").glob("onnx_analyzer-*.whl"))) == 1


def test_the_image_has_a_python_that_the_package_admits() -> None:
    (version,) = re.findall(r"^FROM python:3\.(\d+)-slim AS base", STAGES[0])
    oldest, newest = (
        re.findall(r"3\.(\d+)", name)[0] for name in (PROJECT["requires-python"], PROJECT["classifiers"][5])
    )
    assert int(oldest) <= int(version) <= int(newest)


@pytest.mark.parametrize(("stage", "name", "extras"), [(1, "cuda", "torch,cuda"), (2, "cpu", "torch")])
def test_a_target_installs_extras_that_there_are_and_runs_without_rights(
    stage: int, name: str, extras: str
) -> None:
    recipe = STAGES[stage]
    assert recipe.startswith(f"FROM base AS {name}\n")
    assert f"'/src[{extras}]'" in recipe
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    # CPU builds of PyTorch come from an index of their own, which CI names too.
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    (index,) = re.findall(r"PIP_EXTRA_INDEX_URL: (\S+)", workflow)
    assert (f"--extra-index-url {index}" in recipe) == (name == "cpu")
    assert recipe.rstrip().endswith('USER 65534\nWORKDIR /work\nENTRYPOINT ["analyze"]')
