"""What is published: the sdist, the wheel made from it, and what a user does first with that."""

import os
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from release import expected_files, held_files, problems_of_package, tracked_files
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


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_a_package_has_what_it_must_and_no_tests_samples_reports_or_caches(built: Path, kind: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: nothing says which files are the package's")
    (package,) = built.glob(f"*.{kind}")
    sources = tracked_files()
    assert {"templates/report.html.j2", "analyzer/record/record.schema.json", "analyzer/py.typed"} <= sources
    assert problems_of_package(package, expected_files(package, analyzer.__version__, sources)) == []


def test_a_wheel_has_the_licence_of_every_library_in_its_pages(metadata: Message, installed: Path) -> None:
    libraries = {path.name.split(".")[0] for path in (ROOT / "templates/vendor").glob("*.gz")}
    files = metadata.get_all("License-File", [])
    assert {f"templates/vendor/{name}.LICENSE" for name in libraries | {"bundled"}} | {"LICENSE"} == set(files)
    (about,) = installed.glob("*.dist-info")
    assert all((about / "licenses" / name).read_bytes() == (ROOT / name).read_bytes() for name in files)
    table = (ROOT / "templates/vendor/README.md").read_text(encoding="utf-8")
    licences = {"Apache-2.0", "ISC", "Unlicense", *re.findall(r"\| (\S+) \| `[0-9a-f]{64}` \|", table)}
    assert set(str(metadata["License-Expression"]).split(" AND ")) == licences


def test_a_package_that_lacks_a_template_has_a_test_or_is_too_large_is_refused(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in built.glob("onnx_analyzer-*"):
        held = held_files(package)
        (test,) = {name for name in held if name.endswith("/units.py")}
        monkeypatch.setattr("release.MOST_BYTES", package.stat().st_size)
        assert problems_of_package(package, held - {test} | {"lost.css"}) == [
            f"{package.name} lacks lost.css",
            f"{package.name} has {test}, which does not belong there",
        ]
        monkeypatch.setattr("release.MOST_BYTES", package.stat().st_size - 1)
        (problem,) = problems_of_package(package, held)
        assert problem.startswith(f"{package.name} is over ")


def test_the_wheel_has_the_command(installed: Path) -> None:
    (path,) = installed.glob("*.dist-info/entry_points.txt")
    assert "analyze = analyzer.__main__:main" in path.read_text(encoding="utf-8").splitlines()


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
