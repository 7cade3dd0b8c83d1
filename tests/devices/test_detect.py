"""What this machine has, and which entry of the catalogue a driver's name means."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analyzer.devices import catalogue, detection

if TYPE_CHECKING:
    from tests.conftest import Machine


@pytest.mark.parametrize(
    ("name", "gigabytes", "capability", "slug"),
    [
        ("NVIDIA A100-SXM4-80GB", 85, "8.0", "a100-80gb-sxm"),
        ("NVIDIA A100-PCIE-40GB", 42, "8.0", "a100-40gb-pcie"),
        ("NVIDIA H100 80GB HBM3", 85, "9.0", "h100-80gb-sxm"),
        ("NVIDIA H100 PCIe", 85, "9.0", "h100-80gb-pcie"),
        ("NVIDIA H200", 150, "9.0", "h200"),
        ("Tesla T4", 16, "7.5", "t4"),
        ("NVIDIA L4", 24, "8.9", "l4"),
        ("NVIDIA A10G", 24, "8.6", "a10g"),
        ("NVIDIA GeForce RTX 3080", 10, "8.6", "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 4090", 25, "8.9", "rtx-4090"),
        ("NVIDIA L20", 48, "8.9", "l20"),
        ("NVIDIA L40S", 48, "8.9", "l40s"),
        ("NVIDIA RTX A1000", 8, "8.6", "rtx-a1000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 102, "12.0", "rtx-pro-6000-blackwell"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            102,
            "12.0",
            "rtx-pro-6000-blackwell-max-q",
        ),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 102, "12.0", "rtx-pro-6000-blackwell-server"),
        ("NVIDIA B200", 192, "10.0", "b200"),
        ("NVIDIA GB200", 198, "10.0", "gb200"),
        ("NVIDIA B300 SXM6 AC", 288, "10.3", "b300"),
        ("NVIDIA GB300", 297, "10.3", "gb300"),
    ],
)
def test_a_driver_s_name_finds_the_card(name: str, gigabytes: int, capability: str, slug: str) -> None:
    found = detection.gpu_by_name(name, gigabytes * 10**9, capability, {})
    assert found is not None
    assert found.slug == slug
    assert found.assumed == catalogue.device(slug).assumed


def test_a_card_that_nobody_knows_borrows_figures_and_says_so() -> None:
    found = detection.gpu_by_name("NVIDIA GeForce GTX 1650", 4 * 10**9, "7.5", {})
    assert found is not None
    assert "model" in found.assumed
    assert "Not in the catalogue" in found.notes
    assert detection.gpu_by_name("NVIDIA Future", 10**9, "99.0", {}) is None


def test_a_card_of_a_newer_capability_borrows_from_its_generation() -> None:
    """A GB10 says 12.1, the catalogue's Blackwell cards with GDDR7 say 12.0."""
    found = detection.gpu_by_name("NVIDIA GB10", 128 * 10**9, "12.1", {})
    assert found is not None
    assert found.compute_capability == "12.0"
    assert found.memory_bytes == 128 * 10**9
    assert "model" in found.assumed


def test_what_was_measured_replaces_what_the_cpu_suggests() -> None:
    measured = {
        "threads": 2.0,
        "cores": 2.0,
        "gemm.float32.t2.m256.n256.k256": 5e11,
        "gemm.float32.t2.m16.n16.k16": 3e10,
        "copy.t2.268435456": 3.2e10,
    }
    cpu = detection.this_cpu(measured)
    assert cpu.origin == "calibrated"
    assert cpu.peak_flops_per_s["fp32"] == 5e11
    assert cpu.bandwidth_bytes_per_s == 3.2e10
    assert cpu.calibration == measured


def test_no_kernel_that_was_timed_is_faster_than_the_peak() -> None:
    """On a busy machine a convolution may come out faster than any product."""
    measured = {
        "threads": 2.0,
        "cores": 2.0,
        "gemm.float32.t2.m512.n512.k512": 1.9e11,
        "conv.float32.t2.3x3": 2.2e11,
        "conv.float32.t1.3x3": 9e11,  # one thread: no peak of two
        "gemm.int8.t2.m512.n512.k512": 3.8e11,
        "conv.u8s8.t2.3x3": 4.1e11,
        "elementwise.Add.t2": 1e-10,
    }
    cpu = detection.this_cpu(measured)
    assert (cpu.peak_flops_per_s["fp32"], cpu.peak_flops_per_s["int8"]) == (2.2e11, 4.1e11)
    assert cpu.notes == ""
    assert detection.this_cpu({**measured, "busy": 1.5}).notes == (
        "This CPU was calibrated while other processes ran (1.5 of 2 cores)."
    )


def test_without_a_calibration_the_cpu_says_what_it_assumes() -> None:
    cpu = detection.this_cpu({})
    assert cpu.origin == "catalogue"
    assert cpu.units >= 1
    assert cpu.peak_flops_per_s["fp32"] > 0


@pytest.mark.parametrize(("flag", "times"), [("amx_int8", 32), ("avx512_vnni", 4), ("sse2", None)])
def test_a_cpu_that_is_not_listed_multiplies_bytes_as_its_instructions_do(
    monkeypatch: pytest.MonkeyPatch, flag: str, times: float | None
) -> None:
    """A tile takes 2,048 operations on bytes a clock where 64 are of fp32; VNNI four bytes for each float."""
    described = {
        "brand_raw": "A CPU of no catalogue",
        "flags": ["avx512f", flag],
        "hz_actual": (2_000_000_000,),
    }
    monkeypatch.setattr(detection, "_cpu_description", lambda: described)
    peaks = detection.this_cpu({}).peak_flops_per_s
    assert peaks.get("int8") == (None if times is None else times * peaks["fp32"])


def test_a_machine_is_what_was_measured_of_it_else_the_catalogues_else_a_guess_that_says_so(
    machine: Machine,
) -> None:
    """Of 32 cores of a Xeon Platinum 8375C two are here: a sixteenth of its peaks and of its bandwidth."""
    cpu = detection.this_cpu()
    assert (cpu.name, cpu.units, cpu.threads) == (machine.brand, machine.cores, machine.threads)
    whole = catalogue.match_cpu(machine.brand)
    if machine.calibrated:
        assert (cpu.slug, cpu.origin, cpu.assumed) == ("this-cpu", "calibrated", ())
        assert cpu.calibration == machine.ceilings()
    elif whole is not None:
        assert (cpu.slug, cpu.origin, cpu.assumed) == ("xeon-platinum-8375c", "catalogue", whole.assumed)
        assert cpu.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s / 16)
        assert cpu.peak_flops_per_s["fp32"] == pytest.approx(whole.peak_flops_per_s["fp32"] / 16)
    else:
        assert (cpu.slug, cpu.origin, cpu.assumed) == ("this-cpu", "catalogue", ("bandwidth_bytes_per_s",))
        assert not cpu.calibration


def test_a_calibrated_processor_is_priced_as_the_catalogues_of_its_name() -> None:
    found = detection.this_cpu({})
    here = replace(found, slug="this-cpu", name="Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz")
    assert catalogue.model_of(here) == "xeon-platinum-8375c"
    assert catalogue.model_of(catalogue.device("epyc-9654")) == "epyc-9654"
    assert catalogue.model_of(replace(here, name="AMD EPYC")) == "this-cpu"


@pytest.mark.parametrize(
    ("brand", "slug"),
    [
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", "xeon-platinum-8259cl"),
        ("Intel(R) Xeon(R) CPU E5-2699 v4 @ 2.20GHz", "xeon-e5-2699-v4"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ("13th Gen Intel(R) Core(TM) i7-13700K", "core-i7-13700k"),
        ("13th Gen Intel(R) Core(TM) i9-13900", "core-i9-13900"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "core-i9-13900k"),
        ("12th Gen Intel(R) Core(TM) i7-12800H", "core-i7-12800h"),
        ("Intel(R) Xeon(R) Gold 6240R CPU @ 2.40GHz", "xeon-gold-6240r"),
        ("Intel(R) Xeon(R) w7-2495X", "xeon-w7-2495x"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "xeon-platinum-8481c"),
        ("AMD EPYC 7R13 Processor", "epyc-7r13"),
        ("AMD EPYC 7773X 64-Core Processor", "epyc-7773x"),
        ("AMD Ryzen Threadripper 3970X 32-Core Processor", "ryzen-threadripper-3970x"),
        ("AMD Ryzen Threadripper 7980X 64-Cores", "ryzen-threadripper-7980x"),
        ("Apple M2", "apple-m2"),
    ],
)
def test_a_processor_s_own_name_finds_it_in_the_catalogue(brand: str, slug: str) -> None:
    found = catalogue.match_cpu(brand)
    assert found is not None
    assert found.slug == slug


def test_a_processor_without_a_model_number_matches_nothing() -> None:
    assert catalogue.match_cpu("AMD EPYC") is None
