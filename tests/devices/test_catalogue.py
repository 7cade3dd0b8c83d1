"""The hardware catalogue against what vendors publish and against itself."""

import json
import math
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from analyzer.devices import catalogue
from analyzer.errors import DeviceError

# Bus width in bits and data rate per pin in Gbit/s, from the vendors' own specification pages.
MEMORY_BUSES = {
    "t4": (256, 10.0),
    "l4": (192, 12.5),
    "a10": (384, 12.5),
    "a40": (384, 14.5),
    "v100-16gb-sxm": (4096, 1.757),
    "a100-40gb-sxm": (5120, 2.43),
    "a100-80gb-sxm": (5120, 3.186),
    "h100-80gb-sxm": (5120, 5.23),
    "h200": (6144, 6.25),
    "rtx-3080-10gb": (320, 19.0),
    "rtx-3090": (384, 19.5),
    "rtx-4090": (384, 21.0),
    "rtx-5090": (512, 28.0),
    "l40s": (384, 18.0),
    "l20": (384, 18.0),
    "rtx-a1000": (128, 12.0),
    "b200": (7680, 7.992),
    "rtx-pro-6000-blackwell": (512, 28.0),
    "rtx-pro-6000-blackwell-server": (512, 24.96),
}
# The sparse figures that advertisements quote for fp16 (operations per second).
SPARSE_FP16 = {"l4": 242e12, "h100-80gb-sxm": 1979e12, "l40s": 733e12, "a100-80gb-sxm": 624e12, "l40": 362e12}
# The same of fp8 and fp4, from data sheets; for GeForce and RTX PRO cards the advertised "AI TOPS" of fp4.
SPARSE_FP8 = {
    "l4": 485e12,
    "l40": 724e12,
    "l40s": 1466e12,
    "rtx-6000-ada": 1457e12,
    "h100-80gb-pcie": 3026e12,
    "h100-80gb-sxm": 3958e12,
    "h100-94gb-nvl": 3341e12,
    "h200": 3958e12,
    "h200-nvl": 3341e12,
    "gh200": 3958e12,
    "b200": 9e15,
    "gb200": 10e15,
    "b300": 9e15,
    "gb300": 10e15,
    "mi300x": 5229.8e12,
    "mi325x": 5229.8e12,
}
SPARSE_FP4 = {
    "b200": 18e15,
    "gb200": 20e15,
    "rtx-5060": 614e12,
    "rtx-5070": 988e12,
    "rtx-5080": 1801e12,
    "rtx-5090": 3352e12,
    "rtx-pro-6000-blackwell": 4030e12,
    "rtx-pro-6000-blackwell-max-q": 3511e12,
}
# MB of 2^20 bytes, from NVIDIA's white papers and from the cards' drivers.
L2_MEGABYTES = {
    "v100-16gb-sxm": 6,
    "t4": 4,
    "a100-40gb-pcie": 40,
    "a100-80gb-sxm": 40,
    "h100-80gb-sxm": 50,
    "h200": 60,
    "l4": 48,
    "l40s": 96,
    "rtx-4090": 72,
    "rtx-5090": 96,
    "rtx-pro-6000-blackwell": 128,
    "b200": 126.5,
    "b300": 126.5,
}
# What programs that copy memory were seen to reach on these cards, TB/s.
COPIES = {
    "a100-80gb-sxm": (1.65, 1.80),
    "h100-80gb-sxm": (2.85, 3.05),
    "h200": (4.0, 4.3),
    "b200": (6.0, 6.8),
    "b300": (6.0, 6.8),
    "l40s": (0.74, 0.80),
}
# Cores, threads, L3 (MB of 2^20 bytes), package power (W) and memory bandwidth (GB/s): Intel's and AMD's pages;
# of models made for a cloud, lscpu there.
PROCESSORS = {
    "xeon-gold-6240r": (24, 48, 35.75, 165, 140.8),
    "xeon-w7-2495x": (24, 48, 45, 225, 153.6),
    "xeon-platinum-8481c": (56, 112, 105, 350, 307.2),
    "epyc-7773x": (64, 128, 768, 280, 204.8),
    "epyc-7r13": (48, 96, 192, 225, 204.8),
    "core-i7-12800h": (14, 20, 24, 45, 76.8),
    "core-i9-13900": (24, 32, 36, 65, 89.6),
    "ryzen-threadripper-3970x": (32, 64, 128, 280, 102.4),
    "ryzen-threadripper-7980x": (64, 128, 256, 350, 166.4),
}


@pytest.mark.parametrize(
    "slug",
    [
        "t4",
        "l4",
        "a10g",
        "a100-40gb-pcie",
        "a100-80gb-sxm",
        "h100-80gb-sxm",
        "h200",
        "rtx-3080-10gb",
        "epyc-9654",
    ],
)
def test_a_device_of_the_contract_is_found_by_its_slug(slug: str) -> None:
    assert catalogue.device(slug).slug == slug


@pytest.mark.parametrize(
    ("typed", "slug"),
    [
        ("rtx4090", "rtx-4090"),
        ("A100 80 GB", "a100-80gb-sxm"),
        ("h100pcie", "h100-80gb-pcie"),
        ("l40s", "l40s"),
    ],
)
def test_names_are_found_with_hyphens_elsewhere_or_none(typed: str, slug: str) -> None:
    assert catalogue.device(typed).slug == slug


def test_names_are_found_in_any_case_and_by_alias() -> None:
    assert catalogue.device("A100").slug == "a100-80gb-sxm"
    assert catalogue.device("H100").slug == "h100-80gb-sxm"
    assert catalogue.device("RTX 3090") is catalogue.device("rtx-3090")


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("RTX-PRO-6000-Blackwell-Server", "rtx-pro-6000-blackwell-server"),
        ("RTX PRO 6000 Blackwell Max-Q", "rtx-pro-6000-blackwell-max-q"),
        ("RTX-PRO-6000", "rtx-pro-6000-blackwell"),
        ("B300-SXM", "b300"),
        ("B200-SXM", "b200"),
        ("GB200", "gb200"),
        ("GB300", "gb300"),
        ("H200-SXM", "h200"),
        ("H100-SXM", "h100-80gb-sxm"),
        ("A100-SXM", "a100-80gb-sxm"),
        ("L20", "l20"),
        ("RTX-A1000", "rtx-a1000"),
        ("RTX-A6000", "rtx-a6000"),
        ("RTX-3090", "rtx-3090"),
        ("RTX-4090", "rtx-4090"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("Xeon Gold 6240R", "xeon-gold-6240r"),
        ("i9-13900", "core-i9-13900"),
        ("Threadripper 7980X", "ryzen-threadripper-7980x"),
    ],
)
def test_names_of_public_tables_are_understood(name: str, slug: str) -> None:
    for written in (name, name.lower(), name.upper(), name.replace("-", " "), name.replace(" ", "-")):
        assert catalogue.device(written).slug == slug


def test_every_device_is_found_by_each_of_its_names() -> None:
    for one in (*catalogue.gpus(), *catalogue.cpus()):
        for name in (one.slug, *catalogue.aliases(one.slug)):
            assert catalogue.device(name) is one
            assert catalogue.device(name.upper().replace("-", " ")) is one


def test_every_gathered_row_is_in_the_catalogue() -> None:
    assert (len(catalogue.gpus()), len(catalogue.cpus()), len(catalogue.instances())) == (67, 44, 172)


def test_no_two_devices_share_a_name() -> None:
    names = [
        name
        for one in (*catalogue.gpus(), *catalogue.cpus())
        for name in (one.slug, *catalogue.aliases(one.slug))
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("slug", "bus"), MEMORY_BUSES.items())
def test_memory_bandwidth_is_bus_width_times_rate(slug: str, bus: tuple[int, float]) -> None:
    bits, rate = bus
    assert catalogue.device(slug).bandwidth_bytes_per_s == pytest.approx(bits / 8 * rate * 1e9, rel=0.01)


def test_cpu_bandwidth_is_channels_times_transfers() -> None:
    checked = 0
    for cpu in catalogue.cpus():
        figures = {item.key: item.value for item in catalogue.figures(cpu.slug)}
        channels, transfers = figures.get("memory_channels"), figures.get("memory_transfers_per_s")
        if channels and transfers and figures["memory_type"].startswith("DDR"):
            assert cpu.bandwidth_bytes_per_s == pytest.approx(channels * 8 * transfers, rel=0.01), cpu.slug
            checked += 1
    assert checked >= 20


@pytest.mark.parametrize(("slug", "sparse"), SPARSE_FP16.items())
def test_tensor_peaks_are_dense(slug: str, sparse: float) -> None:
    assert catalogue.device(slug).peak_flops_per_s["fp16"] == pytest.approx(sparse / 2, rel=0.02)


@pytest.mark.parametrize(
    ("slug", "dtype", "sparse"),
    [(slug, "fp8", sparse) for slug, sparse in SPARSE_FP8.items()]
    + [(slug, "fp4", sparse) for slug, sparse in SPARSE_FP4.items()],
)
def test_peaks_of_narrow_floats_are_dense(slug: str, dtype: str, sparse: float) -> None:
    assert catalogue.device(slug).peak_flops_per_s[dtype] == pytest.approx(sparse / 2, rel=0.02)


def test_narrow_floats_are_there_where_tensor_cores_have_them() -> None:
    """fp8 since Ada (8.9) and Hopper, at twice fp16; fp4 since Blackwell (10.0), at no less than fp8."""
    for card in catalogue.gpus():
        peaks = card.peak_flops_per_s
        if card.vendor == "NVIDIA":
            generation = tuple(int(part) for part in card.compute_capability.split("."))
            assert ("fp8" in peaks) == (generation >= (8, 9)), card.slug
            assert ("fp4" in peaks) == (generation >= (10, 0)), card.slug
        if "fp8" in peaks:
            assert peaks["fp8"] == pytest.approx(2 * peaks["fp16"], rel=0.03), card.slug
        if "fp4" in peaks:
            assert peaks["fp4"] >= 1.9 * peaks["fp8"], card.slug


def test_wider_floats_are_not_faster() -> None:
    for card in catalogue.gpus():
        peaks = card.peak_flops_per_s
        floats = [peaks[name] for name in ("fp64", "fp32", "tf32", "fp16", "fp8", "fp4") if name in peaks]
        assert all(wide <= 1.01 * narrow for wide, narrow in pairwise(floats)), card.slug


def test_what_was_measured_does_not_exceed_the_peaks() -> None:
    """The clock goes beyond the rated one where power allows: products of fp16 by a tenth."""
    for card in catalogue.gpus():
        peak, best = card.bandwidth_bytes_per_s, card.sustained.get("bandwidth")
        assert best is None or 0.7 * peak < best < peak, card.slug
        product = card.sustained.get("fp16")
        assert product is None or product < 1.1 * card.peak_flops_per_s["fp16"], card.slug


@pytest.mark.parametrize(("slug", "seen"), COPIES.items())
def test_sustained_bandwidths_are_what_copies_reach(slug: str, seen: tuple[float, float]) -> None:
    least, most = seen
    assert least <= catalogue.device(slug).sustained["bandwidth"] * 1e-12 <= most


@pytest.mark.parametrize(("slug", "megabytes"), L2_MEGABYTES.items())
def test_caches_of_cards_are_their_makers(slug: str, megabytes: float) -> None:
    assert catalogue.device(slug).cache_bytes == megabytes * 2**20


@pytest.mark.parametrize(("slug", "published"), PROCESSORS.items())
def test_processors_have_their_makers_figures(
    slug: str, published: tuple[int, int, float, float, float]
) -> None:
    cpu = catalogue.device(slug)
    cores, threads, cache, power, bandwidth = published
    assert (cpu.units, cpu.threads, cpu.tdp_w) == (cores, threads, power)
    assert cpu.cache_bytes == cache * 2**20
    assert cpu.bandwidth_bytes_per_s == pytest.approx(bandwidth * 1e9)


def test_cpu_doubles_run_at_half_the_rate_of_floats() -> None:
    for cpu in catalogue.cpus():
        assert cpu.peak_flops_per_s["fp64"] == pytest.approx(cpu.peak_flops_per_s["fp32"] / 2, rel=0.01), (
            cpu.slug
        )


def test_int8_runs_at_twice_the_full_fp16_rate() -> None:
    """GeForce cards halve fp16 with fp32 accumulation, so that int8 is four times it there.

    Blackwell Ultra (10.3) gave up int8 for fp4: a fifteenth of fp16.
    """
    for card in catalogue.gpus():
        half, narrow = card.peak_flops_per_s.get("fp16"), card.peak_flops_per_s.get("int8")
        if not half or not narrow or card.vendor == "AMD":
            continue
        if card.compute_capability == "10.3":
            assert narrow < half / 10, card.slug
            continue
        factor = 4 if "GeForce" in card.name else 2
        assert narrow / half == pytest.approx(factor, rel=0.05), card.slug


def test_tf32_is_half_of_fp16_and_bf16_equals_it() -> None:
    for card in catalogue.gpus():
        peaks = card.peak_flops_per_s
        if "tf32" in peaks and card.vendor == "NVIDIA":
            assert peaks["fp16"] / peaks["tf32"] == pytest.approx(2, rel=0.05), card.slug
            assert peaks["bf16"] == pytest.approx(peaks["fp16"], rel=0.01), card.slug


def test_fp32_peak_is_lanes_times_clock() -> None:
    """An NVIDIA multiprocessor has 64 (Pascal GP100, Volta, Turing, GA100) or 128 fp32 lanes, 2 FLOPs each."""
    for card in catalogue.gpus():
        if card.vendor != "NVIDIA" or not card.clock_hz or "units" in derived(card.slug):
            continue
        lanes = 64 if card.compute_capability in ("6.0", "7.0", "7.5", "8.0") else 128
        assert card.peak_flops_per_s["fp32"] == pytest.approx(
            2 * lanes * card.units * card.clock_hz, rel=0.04
        ), card.slug


def derived(slug: str) -> set[str]:
    return {item.key for item in catalogue.figures(slug) if item.basis == "derived"}


def test_the_release_wheel_runs_exactly_on_the_architectures_it_has_machine_code_for() -> None:
    compiled = {"7.5", "8.0", "8.6", "8.9", "9.0", "12.0"}
    arm_hosts = {"t4g", "gh200", "gb200", "gb300"}
    for card in catalogue.gpus():
        expected = (
            card.vendor == "NVIDIA" and card.compute_capability in compiled and card.slug not in arm_hosts
        )
        assert card.runs_release_wheel is expected, card.slug
    assert not catalogue.device("v100").runs_release_wheel
    assert not catalogue.device("b200").runs_release_wheel


def test_every_device_names_its_sources_and_has_plausible_figures() -> None:
    for one in (*catalogue.gpus(), *catalogue.cpus()):
        assert one.source, one.slug
        assert all(math.isfinite(peak) and peak > 1e10 for peak in one.peak_flops_per_s.values()), one.slug
        assert 1e10 < one.bandwidth_bytes_per_s < 1e13, one.slug
        assert one.units >= 1
        assert (one.link is None) == (one.kind == "cpu"), one.slug


def test_links_move_no_more_than_their_theory_allows() -> None:
    theory = {"PCIe 3.0 x16": 15.75e9, "PCIe 4.0 x16": 31.5e9, "PCIe 4.0 x8": 15.75e9, "PCIe 5.0 x16": 63e9}
    for card in catalogue.gpus():
        if card.link is not None and card.link.name in theory:
            assert card.link.pageable_bytes_per_s <= card.link.bandwidth_bytes_per_s < theory[card.link.name]


def test_an_unknown_device_suggests_the_nearest() -> None:
    with pytest.raises(DeviceError, match="a1100") as caught:
        catalogue.device("a1100")
    assert caught.value.hint is not None
    assert "a100" in caught.value.hint
    with pytest.raises(DeviceError) as caught:
        catalogue.device("rtx-4900")
    assert "rtx-4090" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("c7i.xlarge", "--cpu xeon-platinum-8488c"),
        ("G6.xlarge", "--gpu l4"),
        ("Standard_NC4as_T4_v3", "--gpu t4"),
    ],
)
def test_the_name_of_an_instance_is_answered_with_its_chip(name: str, chip: str) -> None:
    with pytest.raises(DeviceError, match=f"No device is called '{name}'") as caught:
        catalogue.device(name)
    assert f"is an instance: name its chip, {chip}" in (caught.value.hint or "")


def test_instances_have_a_price_and_point_into_the_catalogue() -> None:
    for item in catalogue.instances():
        assert item.usd_per_hour > 0, item.name
        assert item.source
        for slug in (item.gpu, item.cpu):
            if slug:
                assert catalogue.device(slug).slug == slug
        assert (item.gpu is not None) == (item.gpu_count > 0), item.name


def test_published_prices_are_in_the_list() -> None:
    """AWS on-demand, us-east-1, July 2026."""
    prices = {item.name: item.usd_per_hour for item in catalogue.instances() if item.provider == "AWS"}
    assert prices["g4dn.xlarge"] == 0.526
    assert prices["g6.xlarge"] == 0.8048
    assert prices["p5.48xlarge"] == 55.04


def test_the_cpu_of_an_instance_is_its_share_of_the_whole() -> None:
    """c6i.4xlarge has 16 of the 64 threads of a Xeon 8375C: 8 of its 32 cores."""
    item = next(item for item in catalogue.instances() if item.name == "c6i.4xlarge")
    share, whole = catalogue.instance_cpu(item), catalogue.device("xeon-platinum-8375c")
    assert share is not None
    assert share.units == 8
    assert share.peak_flops_per_s["fp32"] == pytest.approx(whole.peak_flops_per_s["fp32"] / 4)
    assert share.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s / 4)


OWN_DEVICE = """
[my-card]
name = "My card"
architecture = "Ada Lovelace"
units = 20
peak_flops_per_s = { fp32 = 10e12, fp16 = 40e12 }
bandwidth_bytes_per_s = 300e9
memory_bytes = 12_000_000_000
link = "PCIe 4.0 x16"
"""


def test_a_user_adds_a_device_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN_DEVICE)
    card = catalogue.device(str(path))
    assert (card.slug, card.kind, card.units) == ("my-card", "gpu", 20)
    assert catalogue.device(f"{path}:my-card") == card


def test_a_device_of_ones_own_may_have_fp8_and_fp4(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN_DEVICE.replace("fp16 = 40e12", "fp4 = 160e12, fp8 = 80e12, fp16 = 40e12"))
    assert list(catalogue.device(str(path)).peak_flops_per_s) == ["fp32", "fp16", "fp8", "fp4"]
    path.write_text(OWN_DEVICE.replace("fp16 = 40e12", "fp6 = 80e12"))
    with pytest.raises(DeviceError, match="peak_flops_per_s: unknown value 'fp6'") as caught:
        catalogue.device(str(path))
    assert "fp8" in (caught.value.hint or "")


def test_a_device_file_with_a_hole_names_the_missing_figure(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN_DEVICE.replace("bandwidth_bytes_per_s = 300e9\n", ""))
    with pytest.raises(DeviceError, match="bandwidth_bytes_per_s"):
        catalogue.device(str(path))
    path.write_text(OWN_DEVICE.replace("fp32 = 10e12, ", ""))
    with pytest.raises(DeviceError, match="fp32"):
        catalogue.device(str(path))
    path.write_text("[my-card\n")
    with pytest.raises(DeviceError, match="not valid TOML"):
        catalogue.device(str(path))
    with pytest.raises(DeviceError, match="No such file"):
        catalogue.device(str(tmp_path / "none.toml"))


def test_a_device_of_ones_own_may_be_like_one_of_the_catalogue(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[ours]\nlike = "L40S"\nname = "Ours"\ntdp_w = 300.0\nsources = ["our rack"]\n'
        "bus_bandwidth_bytes_per_s = { 2 = 20e9, 8 = 1.4e9 }\n"
    )
    ours, theirs = catalogue.device(str(path)), catalogue.device("l40s")
    assert (ours.slug, ours.name, ours.like, ours.tdp_w) == ("ours", "Ours", "l40s", 300.0)
    assert ours.bus_bandwidth == {2: 20e9, 8: 1.4e9}
    assert (ours.peak_flops_per_s, ours.link) == (theirs.peak_flops_per_s, theirs.link)
    assert ours.source == f"our rack; {theirs.source}"
    basis = {figure.key: figure.basis for figure in catalogue.figures(str(path))}
    assert (basis["tdp_w"], basis["units"]) == ("given", "read")


def test_a_figure_that_is_given_ends_what_was_known_of_the_catalogues(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[ours]\nlike = "l40s"\nbandwidth_bytes_per_s = 400e9\npeak_flops_per_s = { fp64 = 1e12 }\n'
        '[cpu]\nlike = "xeon-w-2135"\npeak_flops_per_s = { fp32 = 5e11 }\nassumed = ["tdp_w"]\n'
    )
    ours, theirs = catalogue.device(f"{path}:ours"), catalogue.device("l40s")
    assert set(theirs.sustained) == {"bandwidth", "fp16"}
    assert ours.sustained == {}  # of another bandwidth, and beside other peaks
    assert ours.peak_flops_per_s == {**theirs.peak_flops_per_s, "fp64": 1e12}
    cpu, sibling = catalogue.device(f"{path}:cpu"), catalogue.device("xeon-w-2135")
    assert "fp32" in sibling.assumed
    assert set(cpu.assumed) == {"tdp_w", *sibling.assumed} - {"fp32"}


def test_what_is_like_a_cpu_is_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[ours]\nlike = "xeon-platinum-8260"\nclock_hz = 2e9\n')
    assert (catalogue.device(str(path)).kind, catalogue.device(str(path)).clock_hz) == ("cpu", 2e9)


@pytest.mark.parametrize(
    ("line", "told", "hint"),
    [
        ('like = "l4s"', "No device is called 'l4s'", "l4"),
        ("like = 4", "ours: like: expected a text, got a whole number", "Correct like there"),
        ('like = "mine.toml"', "ours is like 'mine.toml'", "of the catalogue"),
        (
            f'like = "l40s"\nbus_bandwidth_bytes_per_s = {{ {"9" * 5000} = 24e9 }}',
            "ours: bus_bandwidth_bytes_per_s: ",
            "number of GPUs",
        ),
        (
            'like = "l40s"\nbus_bandwidth_bytes_per_s = { 04 = 24e9 }',
            "ours: bus_bandwidth_bytes_per_s: ",
            "number of GPUs",
        ),
        (
            "\n".join(f"key{number} = 1" for number in range(300)),
            "ours: it has the unknown key `key0`",
            "It knows: name",
        ),
        ('like = "l40s"\nkind = "cpu"', "ours is no gpu, as l40s is", "Leave kind out"),
        (
            'like = "l40s"\nbus_bandwidth_bytes_per_s = { 4 = 24.9 }',
            "ours: bus_bandwidth_bytes_per_s[...]: expected a number >= 100000000.0",
            "bytes per second",
        ),
        (
            'like = "l40s"\nbus_bandwidth_bytes_per_s = { four = 24e9 }',
            "ours: bus_bandwidth_bytes_per_s: ",
            "number of GPUs",
        ),
        (
            'like = "l40s"\nbus_bandwidth_bytes_per_s = { 1 = 24e9 }',
            "ours: bus_bandwidth_bytes_per_s: expected a whole number >= 2",
            "number of GPUs",
        ),
        (
            'like = "l40s"\nbus_bandwidth_bytes_per_s = 24e9',
            "ours: bus_bandwidth_bytes_per_s: expected a table",
            "number of GPUs",
        ),
        (
            'like = "l40s"\nbus_bandwith_bytes_per_s = { 4 = 24e9 }',
            "the unknown key `bus_bandwith_bytes_per_s`",
            "bus_bandwidth",
        ),
        ('like = "l40s"\nmemory_byte = 24e9', "the unknown key `memory_byte`", "memory_bytes"),
    ],
)
def test_a_wrong_entry_that_is_like_a_device_is_one_clear_error(
    tmp_path: Path, line: str, told: str, hint: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[ours]\n{line}\n")
    with pytest.raises(DeviceError) as caught:
        catalogue.device(str(path))
    assert told in str(caught.value)
    assert hint in str(caught.value.hint)


def test_an_own_price_replaces_the_published_one_and_new_machines_are_added(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        '[[instances]]\nprovider = "AWS"\nname = "g6.xlarge"\nusd_per_hour = 0.5\n'
        '[[instances]]\nprovider = "our rack"\nname = "box"\nusd_per_hour = 0.2\nvcpus = 8\ngpu = "t4"\n'
    )
    found = {(item.provider, item.name): item for item in catalogue.instances(path)}
    assert len(found) == 173
    assert found["AWS", "g6.xlarge"].usd_per_hour == 0.5
    assert found["AWS", "g6.xlarge"].gpu == "l4"
    assert found["our rack", "box"].gpu_count == 1


def test_a_price_file_with_a_hole_says_which(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('[[instances]]\nprovider = "AWS"\nname = "g6.xlarge"\n')
    with pytest.raises(DeviceError, match=r"AWS g6\.xlarge: it lacks the key `usd_per_hour`"):
        catalogue.instances(path)
    path.write_text('[[instances]]\nprovider = "AWS"\nname = "x"\nusd_per_hour = 1\ngpu = "l44"\n')
    with pytest.raises(DeviceError, match="l44"):
        catalogue.instances(path)
    path.write_text("")
    with pytest.raises(DeviceError, match="instances"):
        catalogue.instances(path)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA A100 PCIe 40GB", "a100-40gb-pcie"),
        ("GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA L4", "l4"),
        ("Tesla V100-SXM2-16GB", "v100-16gb-sxm"),
        ("AMD EPYC 9654", "epyc-9654"),
    ],
)
def test_full_names_are_understood(name: str, slug: str) -> None:
    assert catalogue.device(name).slug == slug


GOOD_DEVICE = {
    "kind": '"gpu"',
    "link": '"PCIe 4.0 x16"',
    "units": "3",
    "bandwidth_bytes_per_s": "1e9",
    "memory_bytes": "1e9",
    "peak_flops_per_s": "{ fp32 = 1e9 }",
}
GOOD_INSTANCE = {"provider": '"A"', "name": '"b"', "usd_per_hour": "1"}


def lines_of(entry: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in entry.items())


@pytest.mark.parametrize("value", ['"x"', "-1", "nan", "[[]]", "{ a = { a = 1 } }", "2026-01-01", "true"])
@pytest.mark.parametrize(
    "key",
    ["kind", "link", "units", "memory_bytes", "bandwidth_bytes_per_s", "peak_flops_per_s", "threads",
     "clock_hz", "assumed", "sources", "sustained", "year", "notes", "name"],
)  # fmt: skip
def test_a_device_file_of_a_stranger_gives_a_device_or_one_error(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[d]\n" + lines_of({**GOOD_DEVICE, key: value}))
    with suppress(DeviceError):
        assert catalogue.device(str(path)).slug == "d"


@pytest.mark.parametrize("value", ['"x"', "-1", "nan", "[[]]", "{ a = { a = 1 } }", "2026-01-01", "true"])
@pytest.mark.parametrize(
    "key",
    ["usd_per_hour", "provider", "region", "price_date", "vcpus", "memory_bytes", "cpu_nearest", "cpu_type",
     "threads_per_core", "gpu_count", "accelerator", "notes", "source"],
)  # fmt: skip
def test_prices_of_a_stranger_are_prices_or_one_error(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[[instances]]\n" + lines_of({**GOOD_INSTANCE, key: value}))
    with suppress(DeviceError):
        found = next(one for one in catalogue.instances(path) if one.name in ("b", "x"))
        json.dumps(asdict(found), allow_nan=False)


@pytest.mark.parametrize(
    "table", ["links = 3", "sources = 3", "instances = [3]", "d = 3", "a." * 50_000 + "b = 1"]
)
def test_a_table_that_is_none_is_one_error(tmp_path: Path, table: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f"{table}\n" + ("" if table == "d = 3" else "[d]\n" + lines_of(GOOD_DEVICE)))
    with pytest.raises(DeviceError, match=r"own\.toml"):
        (catalogue.instances if table.startswith("instances") else catalogue.device)(str(path))
