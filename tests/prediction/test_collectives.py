"""Collectives among GPUs of a machine: published times, and laws that need no oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.devices.catalogue import device
from analyzer.devices.peer_links import Peer, peer_link
from analyzer.prediction.collectives import Collective, collective_time


def link(slug: str) -> Peer:
    found = peer_link(device(slug))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("slug", "gpus", "nbytes", "measured"),
    [("b300", 2, 512, 9.2e-6), ("b300", 8, 512, 25.8e-6), ("b300", 8, 16 << 20, 87.6e-6),
     ("b300", 8, 128 << 20, 388e-6), ("rtx-pro-6000-blackwell-server", 2, 128 << 20, 3.6e-3)],
)  # fmt: skip
def test_nccl_sums_as_measured(slug: str, gpus: int, nbytes: int, measured: float) -> None:
    """nccl-tests of ai-dynamo/aiconfigurator."""
    found = collective_time("all_reduce", nbytes, gpus, link(slug))
    assert found.time_s == pytest.approx(measured, rel=0.3)
    assert found.low_s < measured < found.high_s


def test_engines_own_kernels_start_faster_inside_graphs() -> None:
    """8 GPUs on NVLink: 7 us instead of 26 with next to nothing to send; the same with much."""
    peer = link("b300")
    small, large = 512, 256 << 20
    assert collective_time("all_reduce", small, 8, peer, in_graph=True).time_s == pytest.approx(7e-6, rel=0.25)
    own, nccl = (collective_time("all_reduce", large, 8, peer, in_graph=how).time_s for how in (True, False))
    assert own == pytest.approx(nccl, rel=0.4)


@pytest.mark.parametrize("slug", ["l40s", "a100-80gb-sxm", "h100-80gb-sxm", "b200"])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_nothing_is_faster_than_its_link(slug: str, kind: Collective) -> None:
    peer = link(slug)
    for gpus in (2, 4, 8):
        for nbytes in (1 << 10, 1 << 20, 1 << 30):
            sent = (2 if kind == "all_reduce" else 1) * (gpus - 1) / gpus * nbytes
            time = collective_time(kind, nbytes, gpus, peer).time_s
            assert time > sent / peer.bandwidth_bytes_per_s
            assert time <= collective_time(kind, 2 * nbytes, gpus, peer).time_s


def test_one_gpu_has_nobody_to_wait_for() -> None:
    assert collective_time("all_reduce", 1 << 30, 1, link("b200")).time_s == 0


@pytest.mark.parametrize(
    ("slug", "gpus", "nbytes", "direct", "through_the_host"),
    [("l40s", 4, 4 << 20, 345e-6, 1.65e-3), ("l40s", 8, 16 << 20, 1.49e-3, 15.5e-3),
     ("rtx-pro-6000-blackwell-server", 2, 16 << 20, 474e-6, 1.12e-3)],
)  # fmt: skip
def test_over_pcie_intervals_hold_machines_whose_gpus_reach_no_other_memory(
    slug: str, gpus: int, nbytes: int, direct: float, through_the_host: float
) -> None:
    """Two machines of each card, engines' kernels inside CUDA graphs (ai-dynamo/aiconfigurator)."""
    found = collective_time("all_reduce", nbytes, gpus, link(slug), in_graph=True)
    assert 1 / 1.8 < found.time_s / direct < 1.8
    assert found.low_s < direct < through_the_host < found.high_s


def test_a_gather_through_the_hosts_memory_lies_in_the_interval() -> None:
    """NCCL on eight L40S (the same tables), of which pairs alone reach each other's memory."""
    found = collective_time("all_gather", 16 << 20, 8, link("l40s"))
    assert found.time_s < 12.3e-3 < found.high_s


def test_of_links_that_nobody_measured_little_is_sure() -> None:
    found = collective_time("all_reduce", 1 << 20, 2, replace(link("l40s"), name="Infinity Fabric"))
    assert found.high_s / found.time_s == found.time_s / found.low_s == pytest.approx(3.5)
