"""What is published: the sdist, the wheel made from it, and what a user does first with that."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from release import problems_of_wheel, tracked_files
from try_wheel import tried

import analyzer

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://code.example/someone/onnx-analyzer"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that is made from it, as the release makes them."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        env={**os.environ, "ANALYZER_REPOSITORY": f"{REPOSITORY}.git"},
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked into an empty folder."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(installed: Path) -> Message:
    (path,) = installed.glob("*.dist-info/METADATA")
    return Parser().parsestr(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("model", ["model.onnx", "model.py"])
def test_what_a_user_does_first_works_from_the_wheel(installed: Path, tmp_path: Path, model: str) -> None:
    environment = {"PYTHONPATH": str(installed)}
    assert tried(Path(sys.executable), analyzer.__version__, tmp_path, environment, model) == []


def test_what_runs_is_the_wheels_own_code(installed: Path, tmp_path: Path) -> None:
    code = "import analyzer; print(analyzer.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(ran.stdout.strip()).is_relative_to(installed)


def test_the_wheel_has_every_file_of_the_package_and_no_tests_samples_or_reports(wheel: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: nothing says which files are the package's")
    expected = tracked_files()
    assert {
        "analyzer/templates/report.html.j2",
        "analyzer/record/record.schema.json",
        "analyzer/py.typed",
    } <= expected
    assert problems_of_wheel(wheel, analyzer.__version__, expected) == []


def test_a_wheel_that_lacks_a_template_or_has_a_test_is_told(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = (held - {"analyzer/units.py"}) | {"analyzer/templates/lost.css"}
    assert problems_of_wheel(wheel, analyzer.__version__, expected) == [
        f"{wheel.name} lacks analyzer/templates/lost.css",
        f"{wheel.name} has analyzer/units.py, which the repository has not",
    ]


def test_the_wheel_has_the_command(installed: Path) -> None:
    (path,) = installed.glob("*.dist-info/entry_points.txt")
    assert "analyze = analyzer.__main__:main" in path.read_text(encoding="utf-8").splitlines()


def test_the_sdist_has_the_tests_and_what_builds_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        ".ci/project_metadata.py",
        ".ci/constraints.txt",
        "tests/packaging/test_wheel.py",
    } <= names


def test_a_package_leads_to_the_repository_that_the_release_names(metadata: Message) -> None:
    links = dict(link.split(", ") for link in metadata.get_all("Project-URL", []))
    assert links["Source"] == REPOSITORY
    assert links["Issues"] == f"{REPOSITORY}/issues"
    assert links["Changelog"] == f"{REPOSITORY}/blob/v{analyzer.__version__}/CHANGELOG.md"


def test_the_readme_of_a_package_has_links_that_work_outside_the_repository(metadata: Message) -> None:
    text = metadata.get_payload()
    assert f"]({REPOSITORY}/blob/v{analyzer.__version__}/CONTRIBUTING.md)" in text
    assert "](CONTRIBUTING.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](CONTRIBUTING.md)" not in text
