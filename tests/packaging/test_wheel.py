"""The wheel holds all that is needed, templates and data included, and works outside the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree and unpacked into an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def analyze(installed: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "ANALYZER_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "analyzer", *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_runs_and_renders_a_page(installed: Path, tmp_path: Path) -> None:
    ran = analyze(installed, tmp_path, ROOT / "samples" / "boosted_trees.onnx", "--runs", "3", "--quiet")
    assert ran.returncode == 0, ran.stderr
    page = (tmp_path / "reports" / "boosted_trees.html").read_text()
    assert "TreeEnsemble" in page


def test_what_runs_is_the_wheels_own_code(installed: Path, tmp_path: Path) -> None:
    code = "import analyzer; print(analyzer.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(ran.stdout.strip()).is_relative_to(installed)


def test_the_wheel_holds_no_tests_samples_or_reports(installed: Path) -> None:
    top = {item.name for item in installed.iterdir() if not item.name.endswith(".dist-info")}
    assert top == {"analyzer"}
    assert (installed / "analyzer" / "templates").is_dir()
    assert (installed / "analyzer" / "record" / "record.schema.json").is_file()


def test_the_wheel_tells_type_checkers_that_it_is_typed(installed: Path) -> None:
    assert (installed / "analyzer" / "py.typed").is_file()
