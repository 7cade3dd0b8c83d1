"""Charts as SVG and PNG: what is drawn, what is written on it, and what comes where it cannot be drawn."""

import json
import re
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import report_factory as factory

from analyzer import units
from analyzer.cli import run_command_line
from analyzer.errors import LibraryError, UsageError
from analyzer.record.formats import CHARTS, COMPARED_CHARTS, FORMATS, PICTURES
from analyzer.report.charts.chart import ColumnKind, tick, vega_config
from analyzer.report.compare.build import compare
from analyzer.report.compare.document import charts_of as charts_of_comparison
from analyzer.report.html import charts_of
from analyzer.report.pictures import light_colours

vl_convert: Any = pytest.importorskip("vl_convert", reason="vl-convert is not installed")
RECORDS = {
    "usual": factory.analysis,
    "no_gpu": factory.without_gpu,
    "generation": factory.generation,
    "generation_capacity": factory.generation_capacity,
    "hostile": factory.hostile,
}
SVG = "{http://www.w3.org/2000/svg}"


@cache
def drawn(name: str) -> dict[str, str]:
    """All charts of a record, drawn once for all tests."""
    return {chart: content.decode() for chart, content in RECORDS[name]().pictures().items()}


def texts(svg: str) -> list[str]:
    """Everything that is written in a picture."""
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def axis_titles(spec: Any) -> Iterator[str]:
    """The titles of all axes of a specification, however deep."""
    if isinstance(spec, dict):
        if isinstance(spec.get("axis"), dict) and spec["axis"].get("title"):
            yield spec["axis"]["title"]
        spec = list(spec.values())
    if isinstance(spec, list):
        for part in spec:
            yield from axis_titles(part)


@pytest.mark.parametrize("name", RECORDS)
def test_every_chart_of_the_page_is_a_document_with_its_title_words_and_axes(name: str) -> None:
    analysis = RECORDS[name]()
    pictures = drawn(name)
    charts = {chart.name: chart for chart in charts_of(analysis)}
    assert list(pictures) == list(charts)
    for chart, svg in pictures.items():
        root = ElementTree.fromstring(svg)  # well-formed, or this is an error
        assert (root.find(f"{SVG}title").text, root.find(f"{SVG}desc").text) != (None, None)
        assert root.get("aria-labelledby").split() == [root[0].get("id"), root[1].get("id")]
        written = texts(svg)
        assert written[0] == charts[chart].title
        assert set(axis_titles(charts[chart].spec)) <= set(written)
        assert f"Made by {analysis.tool.name} {analysis.tool.version}." in " ".join(written)
        # Nothing that only the page could resolve, and nothing that a reader would be sent to.
        assert not re.search(r"var\(|undefined|NaN|href|url\((?!#)", svg)


def test_the_words_of_a_picture_are_the_pages() -> None:
    charts = {chart.name: chart for chart in charts_of(factory.analysis())}
    for name, svg in drawn("usual").items():
        root = ElementTree.fromstring(svg)
        assert root.find(f"{SVG}desc").text == charts[name].alternative
        subject = texts(svg)[1]
        assert (
            subject
            == "imaginary · batch 8, tf32, decided for latency · Imaginary CPU 12 and Imaginary GPU 3000"
        )


def test_series_stand_in_the_legends() -> None:
    pictures = drawn("usual")
    for name in ("roofline", "by-type", "by-module", "cost"):
        assert {"CPU", "GPU"} <= set(texts(pictures[name]))
    for name in ("batch-latency", "batch-throughput"):
        assert {"CPU", "GPU", "Best plan"} <= set(texts(pictures[name]))
    assert {"Conv", "Relu"} <= set(texts(pictures["roofline"]))
    # Without a GPU none is named.
    assert "CPU" in texts(drawn("no_gpu")["by-module"])
    assert "GPU" not in texts(drawn("no_gpu")["by-module"])


def test_the_known_names_of_charts_are_those_that_there_are() -> None:
    made = {chart for name in RECORDS for chart in drawn(name)}
    made |= {chart.name for chart in charts_of(factory.generation_capacity())}
    assert made == set(CHARTS)
    both = compare([("base", factory.analysis()), ("new", factory.analysis(12))])
    assert [chart.name for chart in charts_of_comparison(both)] == list(COMPARED_CHARTS)


def test_what_was_predicted_is_hollow_and_what_was_measured_is_filled() -> None:
    svg = drawn("usual")["batch-latency"]
    rings = re.findall(
        r'<path transform="[^"]*" d="[^"]*A[^"]*" fill="(#\w+)" stroke="(#\w+)" stroke-width="2"', svg
    )
    white, cpu = light_colours()["surface"], light_colours()["cpu"]
    # Seven batches of three plans, one of which does not fit; the CPU was measured at two of them.
    assert len(rings) == 7 * 3 - 1
    assert Counter(fill for fill, _ in rings) == {white: 18, cpu: 2}
    assert all(fill in (white, stroke) for fill, stroke in rings)


def test_widths_and_shares_are_those_of_the_record() -> None:
    # Operator i takes 1 + i mod 5 ms on the CPU, a tenth on the GPU; each fourth, a MaxPool, stays on the CPU.
    times = [(1 + at % 5) * (1 if at % 4 == 3 else 0.1) for at in range(24)]
    shares = [sum(times[:12]) / sum(times), sum(times[12:]) / sum(times)]
    assert [round(100 * share) for share in shares] == [47, 53]
    assert {"stage0 47 %", "stage1 53 %", "imaginary 100 %"} <= set(texts(drawn("usual")["by-module"]))

    svg = drawn("usual")["timeline"]
    (five_ms,) = map(float, re.findall(r'translate\(([\d.]+),16\)"[^>]*>5 ms<', svg))
    cpu = light_colours()["cpu"]
    widths = re.findall(rf'<path d="M[\d.]+,[\d.]+h([\d.]+)v[^"]*" fill="{cpu}"', svg)
    drawn_ms = [round(5 * float(width) / five_ms, 6) for width in widths]
    assert drawn_ms == [1 + at % 5 for at in range(3, 24, 4)]


KINDS: dict[ColumnKind, Any] = {
    "seconds": units.seconds,
    "bytes": units.byte_count,
    "flops": units.flop_count,
    "rate": lambda value: units.rate(value, "FLOP"),
    "share": units.share,
    "dollars": units.dollars,
    "number": units.digits,
    "count": lambda value: units.count(int(value)),
}


def test_labels_of_axes_are_the_programs_own_figures_without_padding_zeros() -> None:
    asked = []
    for kind in KINDS:
        mantissas = (1.0, 1.2, 2.0, 2.5, 5.0, 7.0)
        powers = {"share": range(-3, 1), "count": range(1, 6)}.get(kind, range(-8, 16))
        values = [0.0, *(float(f"{number}e{power}") for power in powers for number in mantissas)]
        if kind == "share":
            values = [*(value for value in values if value <= 1), 0.005, 0.125, 0.135, 0.995]
        asked += [(kind, value) for value in values]
    # One drawing holds all of them: a text for each.
    spec = {
        "data": [{"name": "one", "values": [{}]}],
        "marks": [
            {
                "type": "text",
                "from": {"data": "one"},
                "encode": {"update": {"text": {"signal": tick(kind, f"({value!r})")}}},
            }
            for kind, value in asked
        ],
    }
    shown = texts(vl_convert.vega_to_svg(spec, allowed_base_urls=[]))
    assert len(shown) == len(asked)
    for (kind, value), text in zip(asked, shown, strict=True):
        figure = KINDS[kind](value)
        # 1.50 ms is 1.5 ms, and 2.00 s is 2 s.
        trimmed = re.sub(r"\.(?=\D|$)", "", re.sub(r"(\.\d*?)0+(?=\D|$)", r"\1", figure))
        assert text == trimmed, (kind, value)


def test_rates_below_one_a_second_have_no_prefix() -> None:
    marks = [
        {"type": "text", "encode": {"update": {"text": {"signal": tick("per_second", value)}}}}
        for value in ("0.25", "40", "1500")
    ]
    assert texts(vl_convert.vega_to_svg({"marks": marks}, allowed_base_urls=[])) == [
        "0.25 /s",
        "40 /s",
        "1.5 k/s",
    ]


def test_the_same_record_gives_the_same_bytes() -> None:
    analysis = factory.analysis()
    again = {chart: content.decode() for chart, content in analysis.pictures("svg").items()}
    assert again == drawn("usual")
    assert analysis.pictures("png", ["cost"]) == analysis.pictures("png", ["cost"])


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """The parts of a PNG, each with its sum checked (PNG Specification, 5.3 Chunk layout)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + content),)
        found.append((kind, content))
        at += 12 + length
    return found


def test_a_png_is_the_same_sheet_in_twice_the_pixels_with_its_words() -> None:
    png = factory.analysis().pictures("png", ["batch-latency"])["batch-latency"]
    root = ElementTree.fromstring(drawn("usual")["batch-latency"])
    parts = chunks(png)
    assert [parts[0][0], parts[-1][0]] == [b"IHDR", b"IEND"]
    size = struct.unpack(">II", parts[0][1][:8])
    assert size == tuple(2 * int(root.attrib[name]) for name in ("width", "height"))
    pixels = zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT"))
    # A row is a byte and four a pixel: an empty sheet has one colour, and hardly more bytes than that.
    assert len(pixels) == size[1] * (1 + 4 * size[0])
    assert len(set(pixels)) > 100
    words = [content for kind, content in parts if kind in (b"tEXt", b"iTXt")]
    assert words[0] == b"Software\0analyze"
    assert words[1] == b"Title\0\0\0\0\0Latency by batch"
    assert words[2].decode() == "Description\0\0\0\0\0" + str(root.findtext(f"{SVG}desc"))


def test_the_page_draws_by_the_same_configuration_and_expressions() -> None:
    from analyzer.report import html

    data = html.build(factory.analysis())["data"]
    assert data["style"] == vega_config()
    spec = json.dumps(data["charts"])
    assert "labelExpr" in spec
    assert '"formatType": "tick"' not in spec
    for chart, words in data["captions"].items():
        assert texts(drawn("usual")[chart])[1] == words["subject"]
        assert words["footer"] in " ".join(texts(drawn("usual")[chart]))


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("measured", "Figures are measured. "),
        ("predicted", "Figures are predicted. "),
        ("", "Figures are measured and predicted; what is predicted is hollow or paler. "),
    ],
)
def test_a_picture_says_whence_its_figures_are(origin: str, said: str) -> None:
    analysis = factory.analysis()
    # The chart's own rows decide, whatever the rest of the record is.
    sweep = tuple(
        replace(
            row,
            plans={name: replace(plan, origin=origin or plan.origin) for name, plan in row.plans.items()},
        )
        for row in analysis.sweep
    )
    svg = replace(analysis, sweep=sweep).pictures("svg", ["batch-latency"])["batch-latency"].decode()
    assert f"{said}Bands and thin lines are 90 % intervals. Made by" in " ".join(texts(svg))


def test_pictures_from_python_name_what_there_is() -> None:
    analysis = factory.without_gpu()
    with pytest.raises(UsageError, match="no chart 'batch-latency'") as lacking:
        analysis.pictures("svg", ["batch-latency"])
    assert lacking.value.hint == "It has by-type, by-module, roofline, timeline."
    with pytest.raises(UsageError, match="No chart is called 'rooflines'") as misspelt:
        analysis.pictures("svg", ["rooflines"])
    assert misspelt.value.hint == "Did you mean roofline?"
    with pytest.raises(UsageError, match="html is no picture"):
        analysis.pictures("html")
    with pytest.raises(UsageError, match="svg is a picture of one chart") as text:
        analysis.render("svg")
    assert "analysis.pictures('svg')" in text.value.hint
    with pytest.raises(UsageError, match="has no chart"):
        factory.empty().pictures()


def test_an_analysis_saves_pictures_beside_its_record(tmp_path: Path) -> None:
    written = factory.analysis().save(tmp_path, ["json", "svg", "png"], charts=["cost", "roofline"])
    names = ["imaginary.json"]
    names += [f"imaginary-{chart}.{kind}" for kind in ("svg", "png") for chart in ("cost", "roofline")]
    assert [path.name for path in written] == names
    assert (tmp_path / "imaginary-cost.svg").read_text() == drawn("usual")["cost"]
    # They are known again, and replaced.
    factory.analysis().save(tmp_path, ["svg", "png"], charts=["cost"])


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "net.json"
    path.write_text(factory.analysis().render("json"), encoding="utf-8")
    return path


def run(*words: Any) -> int:
    return run_command_line([str(word) for word in words])


def test_a_record_is_rendered_as_a_file_for_each_chart(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("render", record, "--format", "svg,markdown", "--output", f"{tmp_path}/") == 0
    names = [f"net-{chart}.svg" for chart in drawn("usual")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "net.md"])
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in [*names, "net.md"]]
    assert (tmp_path / "net-roofline.svg").read_text() == drawn("usual")["roofline"]


def test_a_single_chart_goes_to_a_file_or_to_standard_output(
    record: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    one = tmp_path / "figure.png"
    assert run("render", record, "--format", "png", "--chart", "cost", "--output", one, "--quiet") == 0
    assert run("render", record, "--format", "png", "--chart", "cost", "--output", "-") == 0
    printed = capfdbinary.readouterr().out
    assert printed == one.read_bytes()
    assert printed.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--format", "svg", "--chart", "rooflin"), "No chart is called 'rooflin'", "Did you mean roofline?"),
        (("--format", "svg", "--chart", "capacity-tpot"), "has no chart 'capacity-tpot'", "It has by-type,"),
        (
            ("--format", "svg", "--output", "x.svg"),
            "x.svg names one file, and each chart is one",
            "--chart roofline",
        ),
        (("--format", "svg", "--output", "-"), "Several charts cannot share standard output", "--chart"),
        (("--chart", "roofline"), "no picture is written", "--format svg"),
        (("--format", "svg", "--chart", ","), "--chart names no chart", "--chart roofline"),
    ],
)
def test_what_cannot_be_drawn_is_one_message_and_no_file(
    record: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    output = () if "--output" in words else ("--output", "out/")
    assert run("render", record, *words, *output) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert hint in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_picture_is_not_replaced_nor_are_others_written(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "net-timeline.svg"
    foreign.write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
    assert run("render", record, "--format", "svg", "--output", f"{tmp_path}/") == 2
    assert "is no svg report of this program" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [foreign]
    assert run("render", record, "--format", "svg", "--output", f"{tmp_path}/", "--force", "--quiet") == 0
    assert len(list(tmp_path.iterdir())) == len(drawn("usual"))


def test_without_the_library_one_message_says_what_to_install(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert run("render", record, "--format", "svg", "--output", f"{tmp_path}/") == 2
    assert "pip install 'onnx-analyzer[pictures]'" in capsys.readouterr().err
    with pytest.raises(LibraryError):
        factory.analysis().pictures()


def test_a_gate_has_no_pictures(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", record, "--format", "png") == 2
    assert "check has no format 'png'" in capsys.readouterr().err


def test_a_comparison_has_pictures_too(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new.json"
    new.write_text(factory.analysis(12).render("json"), encoding="utf-8")
    out = tmp_path / "out"
    assert run("compare", record, new, "--format", "svg", "--output", f"{out}/") == 0
    assert {path.name for path in out.iterdir()} == {f"net-compare-{chart}.svg" for chart in COMPARED_CHARTS}
    assert capsys.readouterr().out == ""
    written = texts((out / "net-compare-record-latency.svg").read_text())
    assert {"new against net", "net", "new"} <= set(written)


def test_no_picture_is_a_report_and_no_extension_is_shared() -> None:
    assert not set(FORMATS) & set(PICTURES)
    extensions = [form.extension for form in (*FORMATS.values(), *PICTURES.values())]
    assert len(set(extensions)) == len(extensions)
