"""What is told of a fleet: the page's view and data, the tables, a terminal, Markdown, CSV and Parquet."""

import base64
import csv
import gzip
import io
import json
import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import fleet_factory as factory
import pytest
from rich.console import Console

from analyzer.record.fleet import Fleet
from analyzer.record.outcome import RankedWay
from analyzer.report import fleet_page, fleet_tables, terminal
from analyzer.text import middle_cut

# As test_texts_of_strangers.py has it: what steers a terminal, and what commands a CI server.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
COMMAND = re.compile(r"(?m)^\s*::error::|##\w*\[")


def carried(shown: str) -> dict[str, Any]:
    """The data that a page carries packed."""
    (packed,) = re.findall(r'data-gzip="application/json"[^>]*>([^<]*)<', shown)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def printed(fleet: Fleet, width: int = 80) -> str:
    out = io.StringIO()
    terminal.print_document(fleet_page.document(fleet), Console(file=out, width=width, color_system=None))
    return out.getvalue()


def records(fleet: Fleet) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(fleet_tables.render(fleet))))


def test_only_a_model_with_a_record_leads_to_its_page() -> None:
    shown = fleet_page.render(factory.fleet())
    assert 'href="./resnet50.html"' in shown
    assert "broken.html" not in shown


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("a b", "./a%20b.html"),
        ("javascript:alert(1)", "./javascript%3Aalert%281%29.html"),
        ("../x", "./..%2Fx.html"),
        ("a#b?c", "./a%23b%3Fc.html"),
        ("ä", "./%C3%A4.html"),
    ],
)
def test_a_name_is_a_file_beside_the_page_and_nothing_else(name: str, address: str) -> None:
    assert fleet_tables.page_of(name) == address


def test_of_many_failures_the_later_ones_are_folded_up() -> None:
    many = tuple(factory.failing(f"broken-{at:02}") for at in range(30))
    view = fleet_page.build(factory.fleet(models=many, moves=(), consolidation=None))
    assert (len(view["failures"]), len(view["more_failures"])) == (20, 10)
    assert (
        fleet_page.render(factory.fleet(models=many, moves=(), consolidation=None)).count("Raise --timeout.")
        == 30
    )


def test_the_page_of_a_fleet_compiles_nothing_and_asks_nobody() -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', fleet_page.render(factory.fleet()))
    assert "unsafe-eval" not in policy
    assert policy.startswith("default-src 'none'")


def test_the_csv_holds_every_field_of_a_cell() -> None:
    # Two of them stand together in `remark`.
    assert {item.name for item in fields(RankedWay)} - {"note", "why_not"} <= {*fleet_tables.COLUMNS}
    assert len(set(fleet_tables.COLUMNS)) == len(fleet_tables.COLUMNS)


def test_without_pyarrow_no_parquet_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert fleet_tables.write(factory.fleet(), tmp_path / "fleet.parquet") is False
    assert list(tmp_path.iterdir()) == []


def test_parquet_holds_the_rows_of_the_csv_with_their_types(tmp_path: Path) -> None:
    reader = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert fleet_tables.write(factory.fleet(), tmp_path / "fleet.parquet") is True
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.parquet"]
    table = reader.read_table(tmp_path / "fleet.parquet")
    assert tuple(table.column_names) == fleet_tables.COLUMNS
    rows = table.to_pylist()
    told = records(factory.fleet())
    assert [row["model"] for row in rows] == [row["model"] for row in told]
    (chosen,) = [row for row in rows if row["model"] == "resnet50" and row["cheapest"]]
    assert (chosen["batch"], chosen["latency_s"], chosen["fits"]) == (64, 0.06, True)
    assert chosen["usd_per_month"] is None


def test_every_column_of_the_table_holds_what_its_kind_says() -> None:
    types = {"text": str, "whole": int, "real": float, "truth": bool}
    for row in (row for fleet in (factory.fleet(), factory.large(20, 5)) for row in fleet_tables.rows(fleet)):
        for name, value in row.items():
            kind = fleet_tables.kind(name)
            assert value is None or isinstance(value, (int, float) if kind == "real" else types[kind]), name


def test_parquet_takes_any_text(tmp_path: Path) -> None:
    reader = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert fleet_tables.write(factory.hostile("half \udcff"), tmp_path / "fleet.parquet")
    assert "half \\udcff" in reader.read_table(tmp_path / "fleet.parquet").column("sentence").to_pylist()


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_terminals_width_is_kept(width: int) -> None:
    fleet = factory.large(models=60, devices=6)
    lines = printed(fleet, width).splitlines()
    assert max(map(len, lines)) <= width
    assert "Every model (30 of 60)" in lines


def test_a_terminal_of_80_columns_shows_every_figure_whole() -> None:
    shown = printed(factory.fleet())
    for part in ("$5.00 /M tokens", "$1,800 /month", "$0.200 /M inferences", "$500"):
        assert part in shown
    assert "broken: timed out: It took longer than 60 s. Raise --timeout." in shown


def test_a_long_name_keeps_both_ends() -> None:
    assert middle_cut("encoder-of-team-7-large", 11) == "encod…large"
    assert middle_cut("encoder", 7) == "encoder"


def test_of_many_models_a_terminal_shows_what_moves_then_what_failed() -> None:
    many = tuple(replace(factory.classifier(), name=f"model-{at:02}") for at in range(40))
    fleet = factory.fleet(
        models=(*many, factory.failing("zz")),
        moves=(replace(factory.fleet().moves[0], model="model-39"),),
        consolidation=None,
    )
    assert [model.name for model in fleet_page.most_wanted(fleet, 3)] == ["model-39", "zz", "model-00"]


def test_a_thousand_models_fit_a_comment_of_a_pull_request() -> None:
    shown = fleet_page.render_markdown(factory.large(models=1000, devices=4))
    assert len(shown) < 65536
    assert "The page has all 1,000 models." in shown


WRITERS: dict[str, Any] = {
    "page": fleet_page.render,
    "csv": fleet_tables.render,
    "markdown": fleet_page.render_markdown,
    "terminal": printed,
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_text_of_a_fleet_steers_a_terminal_commands_a_server_or_becomes_markup(name: str) -> None:
    shown = WRITERS[name](factory.hostile(factory.HOSTILE))
    assert not FORBIDDEN.search(shown)
    assert not COMMAND.search(shown)
    if name in ("page", "markdown"):
        assert "<img" not in shown
    if name == "page":
        assert factory.HOSTILE in carried(shown)["models"]["sentence"]["of"]


def test_a_spreadsheet_takes_no_text_of_a_fleet_for_a_formula() -> None:
    for row in csv.reader(io.StringIO(fleet_tables.render(factory.hostile("=1+1")))):
        assert not any(value.startswith("=") for value in row)


@pytest.mark.parametrize("name", WRITERS)
def test_half_a_character_is_written_in_every_format(name: str) -> None:
    WRITERS[name](factory.hostile("m\udcff")).encode()


def test_a_service_is_told_by_the_percentile_that_it_was_asked_for() -> None:
    asked = replace(factory.service(), traffic=None, options={"rate": ("500",), "p95": ("50ms",)})
    assert fleet_tables.percentile(asked) == "p95"
    assert fleet_tables.percentile(replace(asked, options={})) == ""
    assert fleet_tables.percentile(factory.classifier()) == "p99"
