"""Settings come with the model: whoever wrote them chooses no file outside, starts nothing, takes no time."""

import os
from pathlib import Path

import pytest

from analyzer.checks.settings import read_settings
from analyzer.errors import UsageError

PATHS = [
    ("", 'output = "{path}"'),
    ("", 'output = "{path}/"'),
    ("", 'prices = "{path}"'),
    ("", 'arrivals = "{path}"'),
    ("", 'gpu = "{path}.toml"'),
    ("", 'gpu = ["l4", "{path}.toml:NAME"]'),
    ("", 'cpu = "{path}.TOML:NAME"'),
    (".check", 'output = "{path}"'),
    (".check", 'gpu = "l4,{path}.toml"'),
    (".check", 'baseline = "{path}"'),
]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    # A link to a folder outside and one to a place where nothing is yet.
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    (folder / "dangling.toml").symlink_to(tmp_path / "nothing")
    (folder / "dangling.TOML").symlink_to(tmp_path / "nothing")
    (folder / "inner").mkdir()
    (folder / "inner_link").symlink_to(folder / "inner")
    monkeypatch.chdir(folder)
    return folder


def settings(repository: Path, text: str, table: str = "") -> Path:
    path = repository / "pyproject.toml"
    path.write_text(f"[tool.analyzer{table}]\n{text}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("where", ["../x", "/etc/x", "inner/../../x", "link/x", "link/../x", "dangling"])
@pytest.mark.parametrize(("table", "line"), PATHS)
def test_a_path_of_the_settings_that_leaves_their_folder_is_refused(
    repository: Path, where: str, table: str, line: str
) -> None:
    path = settings(repository, line.format(path=where), table)
    with pytest.raises(UsageError) as raised:
        read_settings(repository)
    key = line.partition(" ")[0]
    assert f"{path}: [tool.analyzer{table}] {key}" in raised.value.message
    assert "lies outside" in raised.value.message
    assert "command line" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('output = "reports/"', "reports/"),
        ('output = "-"', "-"),
        ('output = "inner/../page.html"', "page.html"),
        ('output = "inner_link/page.html"', os.path.join("inner", "page.html")),
        ('prices = "..prices.toml"', "..prices.toml"),
        ('arrivals = "inner/../trace.csv"', "trace.csv"),
        ('arrivals = "poisson"', "poisson"),
        ('gpu = "my.toml:NAME, l4"', "my.toml:NAME,l4"),
        ('gpu = ["T4", "inner_link/my.toml"]', f"T4,{os.path.join('inner', 'my.toml')}"),
    ],
)
def test_a_path_inside_is_taken_as_it_would_be_typed(repository: Path, line: str, value: str) -> None:
    settings(repository, line)
    assert [str(given) for given in read_settings(repository).default_map().values()] == [value]


def test_a_path_means_the_same_wherever_the_program_is_started(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(repository, 'output = "reports/"\nprices = "p.toml"\n[tool.analyzer.check]\nbaseline = "b.json"')
    monkeypatch.chdir(repository / "inner")
    found = read_settings(repository)
    here = Path(os.path.realpath(repository))
    assert Path(found.default_map()["output"]) == here / "reports"
    assert Path(found.default_map()["prices"]) == here / "p.toml"
    assert found.check.baseline == here / "b.json"


@pytest.mark.parametrize("key", ["open", "force", "run", "update-baseline"])
@pytest.mark.parametrize("table", ["", ".check"])
def test_what_starts_or_replaces_something_is_for_the_command_line_alone(
    repository: Path, table: str, key: str
) -> None:
    settings(repository, f"{key} = true", table)
    with pytest.raises(
        UsageError, match=rf"\[tool.analyzer{table}\] {key} can only be given on the command line"
    ):
        read_settings(repository)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000 + "]" * 50_000,
        "a = " + "{a=" * 50_000 + "1" + "}" * 50_000,
        "[tool.analyzer]\ngpu." + "a." * 50_000 + "b = 1",
        "[" + "a." * 50_000 + "b]",
        "[tool.analyzer]\ngpu." + "a." * 60 + "b = 1",
        "[tool.analyzer]\nbatch = " + "9" * 5000,
        "[tool.analyzer.check]\nmax-latency = " + "9" * 400,
        "[tool.analyzer.check]\ntolerance = " + "9" * 400,
        "[tool.analyzer]\nutilisation = nan",
        "[tool.analyzer]\nutilisation = -inf",
        "[tool.analyzer]\ntime-budget = inf",
        "[tool.analyzer.check]\ntolerance = nan",
        "[tool.analyzer.check]\nmax-latency = nan",
        # A duration is read with a pattern, which must not look at so much.
        f"[tool.analyzer]\nslo = '{'1' * 200_000}x'",
        f"[tool.analyzer.check]\nmax-latency = '{'1' * 200_000}x'",
        '[tool.analyzer]\noutput = "a\\u0000b"',
        '[tool.analyzer.check]\nbaseline = "a\\u0000b"',
        '[tool.analyzer]\ngpu = "a\\u0000b.toml"',
        "[tool.analyzer]\n" + "# much\n" * 200_000,
        f"[tool.analyzer]\n{'k' * 5000} = 1",
    ],
    ids=lambda text: text[:40],
)
def test_hostile_settings_are_one_short_error_that_names_the_file(repository: Path, text: str) -> None:
    path = repository / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        read_settings(repository)
    assert str(path) in raised.value.message
    assert len(raised.value.message) < 500
