"""Collectives among GPUs of a machine: published times, and laws that need no oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.devices.catalogue import device
from analyzer.devices.device import NETWORK, Peer, exchange_notes, peer_link
from analyzer.figures import Figure
from analyzer.prediction.collectives import Collective, collective_time, dominates_from, ring_time, scaled


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
    assert found.value == pytest.approx(measured, rel=0.3)
    assert found.low < measured < found.high


def test_engines_own_kernels_start_faster_inside_graphs() -> None:
    """8 GPUs on NVLink: 7 us instead of 26 with next to nothing to send; the same with much."""
    peer = link("b300")
    small, large = 512, 256 << 20
    assert collective_time("all_reduce", small, 8, peer, in_graph=True).value == pytest.approx(7e-6, rel=0.25)
    own, nccl = (collective_time("all_reduce", large, 8, peer, in_graph=how).value for how in (True, False))
    assert own == pytest.approx(nccl, rel=0.4)


@pytest.mark.parametrize("slug", ["l40s", "a100-80gb-sxm", "h100-80gb-sxm", "b200"])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_nothing_is_faster_than_its_link(slug: str, kind: Collective) -> None:
    peer = link(slug)
    for gpus in (2, 4, 8):
        for nbytes in (1 << 10, 1 << 20, 1 << 30):
            sent = (2 if kind == "all_reduce" else 1) * (gpus - 1) / gpus * nbytes
            time = collective_time(kind, nbytes, gpus, peer).value
            assert time > sent / peer.bandwidth_bytes_per_s
            assert time <= collective_time(kind, 2 * nbytes, gpus, peer).value


def test_one_gpu_has_nobody_to_wait_for() -> None:
    assert collective_time("all_reduce", 1 << 30, 1, link("b200")).value == 0


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
    assert 1 / 1.8 < found.value / direct < 1.8
    assert found.low < direct < through_the_host < found.high


def test_a_gather_through_the_hosts_memory_lies_in_the_interval() -> None:
    """NCCL on eight L40S (the same tables), of which pairs alone reach each other's memory."""
    found = collective_time("all_gather", 16 << 20, 8, link("l40s"))
    assert found.value < 12.3e-3 < found.high


@pytest.mark.parametrize(
    ("gpus", "nbytes", "machines"),
    [
        (8, 32 << 20, {"2 EPYC 9575F, switches": 2976e-6, "4 switches": 1464e-6, "2 EPYC Turin": 2645e-6}),
        (4, 32 << 20, {"2 EPYC 9575F, P2P": 1281e-6, "2 EPYC 9575F": 1661e-6}),
        (4, 1 << 20, {"2 EPYC 9575F": 109.2e-6}),
        (8, 1 << 20, {"2 EPYC 9124": 129.7e-6}),
        (8, 16 << 10, {"2 EPYC 9124": 25.7e-6, "2 EPYC 9575F": 69.3e-6}),
    ],
)
def test_the_interval_holds_machines_of_one_card(gpus: int, nbytes: int, machines: dict[str, float]) -> None:
    """NCCL on RTX PRO 6000 (voipmonitor/rtx6kpro, hardware/ at 070506ff and 3634b44c)."""
    found = collective_time("all_reduce", nbytes, gpus, link("rtx-pro-6000-blackwell-server"))
    assert all(found.low < seconds < found.high for seconds in machines.values())


@pytest.mark.parametrize(
    ("slug", "gpus", "reached", "kind", "nbytes", "measured"),
    [
        ("l40s", 4, 5.11e9, "all_reduce", 4 << 20, 1.235e-3),
        ("l40s", 8, 1.42e9, "all_gather", 16 << 20, 12.31e-3),
        ("rtx-pro-6000-blackwell-server", 8, 24.1e9, "all_reduce", 16 << 20, 1.248e-3),
        ("rtx-pro-6000-blackwell-server", 2, 37.1e9, "reduce_scatter", 32 << 20, 0.574e-3),
    ],
)
def test_a_machines_bus_bandwidth_tells_its_large_exchanges(
    slug: str, gpus: int, reached: float, kind: Collective, nbytes: int, measured: float
) -> None:
    """NCCL of ai-dynamo/aiconfigurator, 128 MB of whose sums reach that much; L40S through the host."""
    told = collective_time(kind, nbytes, gpus, replace(link(slug), bus_bandwidth={gpus: reached}))
    assert told.value == pytest.approx(measured, rel=0.25)
    assert told.low < measured < told.high
    untold = collective_time(kind, nbytes, gpus, link(slug))
    assert told.high / told.low < untold.high / untold.low
    elsewhere = replace(link(slug), bus_bandwidth={gpus + 1: reached})
    assert collective_time(kind, nbytes, gpus, elsewhere) == untold


def test_an_entry_that_is_like_a_card_has_its_link(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[ours]\nlike = "h100-80gb-sxm"\nbus_bandwidth_bytes_per_s = { 8 = 480e9 }\n')
    found = link(str(path))
    assert found == replace(link("h100-80gb-sxm"), bus_bandwidth={8: 480e9})
    assert exchange_notes(found, (8,)) == (
        "Large sums among 8 GPUs reach a bus bandwidth of 480 GB/s, as the device file says.",
    )
    assert exchange_notes(found, (4,)) == ()


def test_over_nvlink_what_is_told_widens_nothing() -> None:
    told = replace(link("b200"), bus_bandwidth={8: 700e9})
    for nbytes in (1 << 10, 1 << 20, 1 << 28):
        one, other = (collective_time("all_reduce", nbytes, 8, peer) for peer in (told, link("b200")))
        assert one.high / one.low == pytest.approx(other.high / other.low)


def test_where_no_bus_bandwidth_is_told_the_two_sorts_of_machines_are_named() -> None:
    partly = replace(link("l40s"), bus_bandwidth={2: 20e9, 4: 5.1e9})
    told, warning = exchange_notes(partly, (2, 4, 8))
    assert told.startswith("Large sums among 2 and 4 GPUs reach a bus bandwidth of 20 GB/s and 5.1 GB/s")
    assert "bus_bandwidth_bytes_per_s" in warning


def test_of_links_that_nobody_measured_little_is_sure() -> None:
    found = collective_time("all_reduce", 1 << 20, 2, replace(link("l40s"), name="Infinity Fabric"))
    assert found.high / found.value == found.value / found.low == pytest.approx(3.5)


def test_a_ring_sends_nearly_twice_the_gradients() -> None:
    link = Peer(name="link", bandwidth_bytes_per_s=1e9, latency_s=0.0, source="")
    assert ring_time(10**9, 1, link) == 0.0
    assert ring_time(10**9, 2, link) == pytest.approx(1.0)
    assert ring_time(10**9, 8, link) == pytest.approx(2 * 7 / 8)


def test_between_machines_the_network_is_the_slowest_link() -> None:
    link = Peer(name="link", bandwidth_bytes_per_s=1e12, latency_s=0.0, source="")
    messages = 2 * 15
    expected = messages / 16 * 1e9 / NETWORK.bandwidth_bytes_per_s + messages * NETWORK.latency_s
    assert ring_time(10**9, 16, link) == pytest.approx(expected)


def test_a_step_that_waits_for_its_gradients_is_dominated_by_communication() -> None:
    link = Peer(name="link", bandwidth_bytes_per_s=1e9, latency_s=0.0, source="")
    one = Figure(value=0.1, low=0.05, high=0.2, origin="predicted")
    rows = scaled(one, 0.06, 10**9, link)
    assert [row.gpus for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert (rows[0].step.ends, rows[0].communication_s) == (one.ends, 0)
    # Each of two GPUs sends a billion bytes, at most as fast as the link: PCIe reaches two thirds of that.
    summing = rows[1].communication_s
    assert 1.0 < summing < 2.0
    # They wait so long less half of the 0.06 s that can hide: most of the step.
    assert rows[1].exposed_s == pytest.approx(summing - 0.03)
    # The sum over PCIe is known within a factor, and the step no better.
    known = collective_time("all_reduce", 10**9, 2, link)
    assert rows[1].step.low == pytest.approx(0.05 + known.low - 0.06)
    assert rows[1].step.high == pytest.approx(0.2 + known.high)
    assert dominates_from(rows) == 2
    assert dominates_from(scaled(one, 0.06, 1000, link)) is None
