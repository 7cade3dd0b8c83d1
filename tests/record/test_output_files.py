"""A file that is not ours is never replaced, and every report of ours is known again."""

import errno
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from analyzer.cli import run_command_line
from analyzer.errors import OutputError
from analyzer.record import output_files
from analyzer.record.analysis import Analysis
from analyzer.record.formats import FORMATS, find
from analyzer.record.output_files import Target, check_writable, is_ours, targets, write_all
from analyzer.run_folder import file_aside

ALIEN = {
    "html": "<!doctype html>\n<html><head><title>Home</title></head></html>\n",
    "json": '{\n "name": "analyze",\n "schema_version": 1\n}\n',
    "text": "a shopping list: decided for bread\n",
    "markdown": "## Notes: decided\n\nfor latency\n",
    "csv": "index,name\n1,x\n",
    "junit": '<?xml version="1.0"?>\n<testsuites name="pytest"></testsuites>\n',
    "sarif": '{"$schema": "x", "version": "2.1.0", "runs": [{"tool": {"driver": {"name": "CodeQL"}}}]}\n',
    "github": "::error file=a.py::no finding of ours\n",
    "model-card": "---\ntags:\n- onnx\n---\n\n# A card by another hand\n",
    "model-explorer": '{"name": "mine", "results": {}}\n',
}


def target(path: Path, name: str = "json") -> Target:
    return Target(format=find(name), path=path)


@pytest.fixture(scope="module")
def record(inference_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "mlp.json"
    path.write_text(inference_text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "better"),
    [("x.pdf", "--format html --output x.html"), ("x.JSON", "--format json --output x.json")],
)
def test_several_reports_make_no_folder_that_is_called_like_a_file(
    tmp_path: Path, name: str, better: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    both = [find("html"), find("json")]
    with pytest.raises(OutputError, match="names one file, and html and json are written") as refused:
        targets(both, name, "net", Path("reports"))
    assert better in (refused.value.hint or "")
    for folder in (f"{name}/", "v1.2", "results.d"):
        places = [target.path for target in targets(both, folder, "net", Path("reports"))]
        assert places == [Path(folder) / "net.html", Path(folder) / "net.json"]
    (tmp_path / name).mkdir()  # it is there, and so it is meant
    assert len(targets(both, name, "net", Path("reports"))) == 2


def test_a_full_disk_is_told_with_the_file_that_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def aside(folder: Path, content: bytes) -> AbstractContextManager[Path]:
        if b"large" in content:
            raise OSError(errno.ENOSPC, "No space left on device")
        return file_aside(folder, content)

    monkeypatch.setattr(output_files, "file_aside", aside)
    texts = {target(tmp_path / "a.json"): "small", target(tmp_path / "b.json"): "large"}
    with pytest.raises(OutputError, match=r"b\.json cannot be written: No space left on device"):
        write_all(texts)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_report_replaces_one_of_its_format_and_no_other_file(
    inference: Analysis, training: Analysis, generation: Analysis, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "report"
    for analysis in (inference, training, generation):
        write_all({target(path, name): analysis.render(name)})
        assert is_ours(path, find(name))
    path.write_text(ALIEN[name])
    with pytest.raises(OutputError, match=f"report is no {name} report") as raised:
        check_writable([target(path, name)])
    assert "--force" in (raised.value.hint or "")
    with pytest.raises(OutputError, match=f"report is no {name} report"):
        write_all({target(path, name): "new"})
    assert path.read_text() == ALIEN[name]
    check_writable([target(path, name)], force=True)
    write_all({target(path, name): "new"}, force=True)
    assert path.read_text() == "new"


@pytest.mark.parametrize("name", ["text", "markdown", "junit", "github", "json", "sarif"])
def test_what_a_check_and_a_comparison_write_is_replaced_by_the_next(
    record: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "out")
    for _ in range(2):
        assert (
            run_command_line(["check", str(record), "--format", name, "--output", output, "--fail-on", "never"])
            == 0
        )
    if name in ("text", "markdown", "json"):
        compared = ["compare", str(record), str(record), "--format", name, "--output"]
        assert run_command_line([*compared, output]) == 2  # another kind of report
        for _ in range(2):
            assert run_command_line([*compared, str(tmp_path / "compared")]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_page_of_a_comparison_replaces_a_page(record: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "page.html")
    for _ in range(2):
        assert (
            run_command_line(["compare", str(record), str(record), "--format", "html", "--output", output]) == 0
        )
    (tmp_path / "page.html").write_text(ALIEN["html"])
    arguments = ["compare", str(record), str(record), "--format", "html", "--output", output]
    assert run_command_line(arguments) == 2
    assert run_command_line([*arguments, "--force"]) == 0


def test_an_empty_file_is_replaced_as_mktemp_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.touch()
    check_writable([target(path)])
    write_all({target(path): "{}"})
    assert path.read_text() == "{}"


def test_one_file_that_is_not_ours_keeps_all_from_being_written(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a.html", tmp_path / "a.json"
    theirs.write_text("{}")
    with pytest.raises(OutputError):
        write_all({target(ours, "html"): "new", target(theirs): "new"})
    assert sorted(os.listdir(tmp_path)) == ["a.json"]
    assert theirs.read_text() == "{}"


def test_a_link_is_judged_by_the_file_that_it_leads_to(tmp_path: Path, inference_text: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    theirs, link = tmp_path / "elsewhere" / "profile", tmp_path / "report.json"
    link.symlink_to(theirs)
    # A link that was put there beforehand makes no file in another folder.
    with pytest.raises(OutputError, match="is a link to"):
        check_writable([target(link)])
    theirs.write_text("export PATH=/bin")
    with pytest.raises(OutputError, match=r"which is .*profile"):
        write_all({target(link): "{}"})
    assert theirs.read_text() == "export PATH=/bin"
    theirs.write_text(inference_text)
    write_all({target(link): "{}"})
    assert (link.is_symlink(), theirs.read_text()) == (True, "{}")


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(OutputError, match="circle"):
        write_all({target(one): "{}"})


@pytest.mark.parametrize("name", ["n" * 5000, "a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        check_writable([target(tmp_path / name)])
    with pytest.raises(OutputError, match="cannot be written"):
        write_all({target(tmp_path / name): ""})


def test_a_file_that_cannot_be_written_to_the_end_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write_all({target(tmp_path / "a.json"): "whole", target(tmp_path / "b.json"): "half \ud800"})
    assert os.listdir(tmp_path) == []


def test_reports_of_the_python_interface_spare_files_that_are_not_ours(
    inference: Analysis, tmp_path: Path
) -> None:
    assert inference.save(tmp_path, ["json"]) == [tmp_path / "mlp.json"]
    inference.save(tmp_path, ["json"])
    (tmp_path / "mlp.json").write_text("[]")
    with pytest.raises(OutputError):
        inference.save(tmp_path, ["json"])
    inference.save(tmp_path, ["json"], force=True)
    assert json.loads((tmp_path / "mlp.json").read_text())["model"]["name"] == "mlp"
