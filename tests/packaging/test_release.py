"""What a release is held against before anything is published, and where it says that it lives."""

import re
from pathlib import Path

import pytest
from project_metadata import ProjectMetadata, address
from release import main, problems, section

import analyzer

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## 1.3.0 - 2026-11-24

The third.

### Added

- Something new.

## 1.2.0 (never published)

### Fixed

- Something old.
"""


def test_a_tag_of_the_packages_version_with_a_dated_part_of_the_changelog_can_be_released() -> None:
    assert problems("v1.3.0", "1.3.0", CHANGELOG) == []


@pytest.mark.parametrize("tag", ["v1.3.1", "1.3.0", "v1.3.0rc1", "v1.3"])
def test_a_tag_that_is_not_the_packages_version_is_refused(tag: str) -> None:
    assert problems(tag, "1.3.0", CHANGELOG) == [
        f"the tag is {tag}, and analyzer.__version__ is 1.3.0: its tag is v1.3.0"
    ]


def test_a_version_without_a_part_of_the_changelog_is_refused() -> None:
    assert problems("v1.4.0", "1.4.0", CHANGELOG) == ["CHANGELOG.md has no heading `## 1.4.0 - YYYY-MM-DD`"]


@pytest.mark.parametrize("dated", ["(unreleased)", "- 2026-11-31", "- 24 November 2026", ""])
def test_a_part_without_a_day_that_there_is_is_refused(dated: str) -> None:
    changelog = CHANGELOG.replace("- 2026-11-24", dated)
    (problem,) = problems("v1.3.0", "1.3.0", changelog)
    assert "where `## 1.3.0 - YYYY-MM-DD` has to stand" in problem


def test_an_older_part_of_the_changelog_is_refused() -> None:
    changelog = CHANGELOG.replace("(never published)", "- 2026-11-22")
    assert problems("v1.2.0", "1.2.0", changelog) == ["CHANGELOG.md begins with 1.3.0, not with 1.2.0"]


def test_a_part_that_says_nothing_is_refused() -> None:
    changelog = CHANGELOG.replace("- Something new.\n", "")
    assert problems("v1.3.0", "1.3.0", changelog) == ["CHANGELOG.md says nothing under 1.3.0"]


def test_the_notes_of_a_release_are_its_part_alone() -> None:
    assert section(CHANGELOG, "1.3.0") == ("- 2026-11-24", "The third.\n\n### Added\n\n- Something new.")
    assert section(CHANGELOG, "1.2.0")[1] == "### Fixed\n\n- Something old."


def test_the_changelog_begins_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated, text = section(changelog, analyzer.__version__)
    assert (
        problems(f"v{analyzer.__version__}", analyzer.__version__, changelog.replace(dated, "- 2026-11-24"))
        == []
    )
    assert text


def test_the_action_and_the_hook_are_documented_at_this_versions_tag() -> None:
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    tags = re.findall(r"(?:actions/analyze@| rev: )(\S+)", page)
    assert tags == [f"v{analyzer.__version__}"] * 2


def test_the_script_ends_with_status_one_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "v0.0.0"]) == 1
    printed = capsys.readouterr()
    assert f"the tag is v0.0.0, and analyzer.__version__ is {analyzer.__version__}" in printed.err
    assert printed.out == ""


def metadata_of(folder: Path, monkeypatch: pytest.MonkeyPatch, repository: str | None) -> dict[str, object]:
    readme = "[a](docs/a.md#part) [b](https://pytorch.org/) [c](#here) ![d](d.png)"
    (folder / "README.md").write_text(readme, encoding="utf-8")
    if repository is None:
        monkeypatch.delenv("ANALYZER_REPOSITORY", raising=False)
    else:
        monkeypatch.setenv("ANALYZER_REPOSITORY", repository)
    found: dict[str, object] = {"version": "1.3.0"}
    ProjectMetadata(str(folder), {}).update(found)
    return found


def test_without_the_repositorys_address_a_package_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = metadata_of(tmp_path, monkeypatch, None)
    assert "urls" not in found
    assert found["readme"] == {
        "content-type": "text/markdown",
        "text": "[a](docs/a.md#part) [b](https://pytorch.org/) [c](#here) ![d](d.png)",
    }


def test_with_it_relative_links_of_the_readme_lead_to_this_version_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = metadata_of(tmp_path, monkeypatch, "https://code.example/o/n/")
    at = "https://code.example/o/n"
    assert found["readme"] == {
        "content-type": "text/markdown",
        "text": f"[a]({at}/blob/v1.3.0/docs/a.md#part) [b](https://pytorch.org/) [c](#here) "
        f"![d]({at}/raw/v1.3.0/d.png)",
    }


@pytest.mark.parametrize(
    "given",
    [
        "OWNER/onnx-analyzer",
        "http://code.example/o/n",
        "https://token@code.example/o/n",
        "https://code.example",
    ],
)
def test_what_is_no_address_of_a_repository_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="https://HOST/OWNER/NAME"):
        address(given)
