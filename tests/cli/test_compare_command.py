import json
from pathlib import Path

import pytest

from analyzer.cli import run_command_line

SAMPLE = Path(__file__).parents[2] / "samples" / "boosted_trees.onnx"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two records of one model: as it is, and as if it moved more bytes."""
    folder = tmp_path_factory.mktemp("records")
    run_command_line(["check", str(SAMPLE), "--format", "json", "--output", str(folder / "base.json")])
    record = json.loads((folder / "base.json").read_text())
    record["operators"][0]["bytes_read"] += record["totals"]["bytes_read"]
    record["totals"]["bytes_read"] *= 2
    (folder / "new.json").write_text(json.dumps(record))
    return folder


def compare(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = run_command_line(["compare", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_without_fail_on_a_difference_is_told_and_the_status_is_0(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = compare(capsys, records / "base.json", records / "new.json")
    assert status == 0
    assert out.startswith("new against base: compared with the base, base\n")
    assert "bytes moved" in out


def test_with_fail_on_a_rise_ends_with_1_and_says_why(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = compare(capsys, records / "base.json", records / "new.json", "--fail-on", "bytes,flops")
    assert status == 1
    assert "new: bytes moved rose" in err
    assert "FLOPs" not in err


def test_every_format_goes_to_a_folder(
    records: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = f"{tmp_path}/out/"
    arguments = (
        records / "base.json",
        records / "new.json",
        "--format",
        "text,markdown,json",
        "--output",
        target,
    )
    assert compare(capsys, *arguments)[0] == 0
    names = sorted(path.name for path in Path(target).iterdir())
    assert names == ["base-compare.json", "base-compare.md", "base-compare.txt"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["base.json"], "NEW"),
        (["base.json", "nothing.json"], "nothing.json"),
        (["base.json", "new.json", "--fail-on", "byte"], "bytes"),
        (["base.json", "new.json", "--format", "jason"], "json"),
        (["base.json", "new.json", "--tolerance", "some"], "5%"),
        (["base.json", "new.json", "--tolerance", "1"], "--tolerance: 1 is 100%"),
    ],
)
def test_what_cannot_be_compared_ends_with_2_and_one_message(
    records: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(records)
    status, out, err = compare(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert words in err
    assert "Traceback" not in err


def test_records_of_one_name_in_two_folders_keep_apart(
    records: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "base.json"
    other.write_text((records / "new.json").read_text())
    _, out, _ = compare(capsys, records / "base.json", other)
    assert f"{other} against {records / 'base.json'}: " in " ".join(out.split())
