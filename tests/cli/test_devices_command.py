"""``analyze devices``: lists, shows one, suggests."""

from pathlib import Path

from click.testing import CliRunner

from analyzer.cli import catalogues
from analyzer.cli.catalogues import devices as command
from analyzer.errors import UsageError
from analyzer.measurement.machine_load import available_cores


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_list_has_every_device_with_slug_and_alias() -> None:
    text = shown()
    for name in ("t4", "a100-80gb-sxm", "h100", "rtx-3080-10gb", "epyc-9654", "xeon-platinum-8260"):
        assert name in text
    assert len([line for line in text.splitlines() if line.startswith("  ")]) == 67 + 44


def test_one_device_shows_each_figure_with_its_basis_and_source() -> None:
    text = shown("A100")
    assert "a100-80gb-sxm" in text
    assert "312 TFLOP/s" in text
    assert "Sources: " in text
    assert "PCIe 4.0 x16" in text
    assert "2026-08-03" in text
    derived = shown("a10g")
    line = next(line for line in derived.splitlines() if line.strip().startswith("bf16"))
    assert line.endswith("derived")


def test_a_card_without_machine_code_says_so() -> None:
    assert "predicted for reference only" in shown("v100")
    assert "predicted for reference only" not in shown("l4")


def test_own_prices_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('[[instances]]\nprovider = "our rack"\nname = "box"\nusd_per_hour = 0.2\ngpu = "t4"\n')
    assert "our rack" in shown("t4", "--prices", str(path))
    assert "our rack" in shown("--prices", str(path))


def test_an_instance_shows_every_price_with_region_day_and_source() -> None:
    text = shown("g2-standard-4")
    rows = [line for line in text.splitlines() if "$" in line][1:]
    assert len(rows) == 12  # four ways of paying in three regions
    assert "reserved for three years us-central1      $0.31807   2025-03-06         [3]" in text
    assert "[3] Cyclenerd/google-cloud-pricing-cost-calculator" in text
    assert "may be taken away" in text


def test_instances_are_listed_as_they_are_paid_and_where() -> None:
    text = shown("--pricing", "spot", "--region", "europe-west4")
    rows = [line for line in text.splitlines() if "$" in line]
    assert (
        len(rows) == 51
    )  # of 57 of GCP's, six are pairs of a machine and a GPU, whose spot price is elsewhere
    assert all("europe-west4" in row for row in rows)
    assert "US dollars an hour spot" in text
    assert "europe-west4" in shown("l4", "--region", "europe-west4")


def test_an_own_device_file_can_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[box]\nname = "Our box"\nkind = "cpu"\nunits = 8\npeak_flops_per_s = { fp32 = 1e12 }\n'
        "bandwidth_bytes_per_s = 50e9\n"
    )
    assert "Our box" in shown(str(path))
    path.write_text(path.read_text() + 'sources = ["its data sheet"]\n')
    assert "Sources: its data sheet" in shown(str(path))


def test_an_own_device_that_is_like_another_shows_what_the_file_gives(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[ours]\nlike = "l40s"\nmemory_bytes = 24000000000\nbus_bandwidth_bytes_per_s = { 4 = 5.1e9 }\n'
    )
    lines = shown(str(path)).splitlines()
    assert "Like l40s of the catalogue" in lines
    rows = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert rows["memory_bytes"].split()[1:] == ["24.0", "GB", "given"]
    assert rows["units"].split()[1:] == ["142", "read"]
    assert "5.10 GB/s  given, among 4 GPUs" in rows["bus"]


def test_part_of_a_name_lists_what_holds_it() -> None:
    rows = [line.split()[0] for line in shown("xeon").splitlines()[1:]]
    assert "xeon-platinum-8375c" in rows
    assert "xeon-gold-6336y" in rows
    assert all(row.startswith("xeon-") for row in rows)
    family = [line.split()[1] for line in shown("c7i").splitlines() if line.startswith("  AWS")]
    assert "c7i.xlarge" in family
    assert all(row.startswith("c7i.") for row in family)


def test_an_instance_is_shown_with_its_gpu_and_price() -> None:
    assert "1 x a10g" in shown("g5.xlarge")


def test_ceilings_are_not_measured_with_more_threads_than_cores() -> None:
    result = CliRunner().invoke(catalogues.calibrate, ["--threads", str(available_cores() + 1)])
    assert isinstance(result.exception, UsageError)
    assert f"--threads {available_cores()}" in str(result.exception.hint)
