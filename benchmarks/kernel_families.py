"""Families of kernels that ``fit_kernels.py`` fits: what was measured, and how the program predicts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import kernel_tables as tables
import numpy as np
from kernel_tables import TURNS, Array, Calls

from analyzer.devices.device import Peer, peer_link
from analyzer.prediction.collectives import (
    NCCL,
    Collective,
    CollectiveConstants,
    interval_factors,
    reached,
    seconds_at,
)
from analyzer.prediction.gpu.attention import (
    Attentions,
    ExpertConstants,
    Mixtures,
    attention_times,
    expert_times,
    hit_experts,
    is_ordinary,
)
from analyzer.prediction.gpu.ceilings import sheet as sheet_of
from analyzer.prediction.gpu.constants import (
    DECODE_WIDTHS,
    EXPERT_WIDTHS,
    FITTED,
    NARROW_WIDTHS,
    PACKED_WIDTHS,
    PREFILL_WIDTHS,
    RARE_DECODE_WIDTHS,
    SIZES_S,
    TENSOR_WIDTHS,
)
from analyzer.prediction.gpu.launch import FLOOR_S, GAP_S
from analyzer.prediction.gpu.on_tensor_cores import narrow_expert_times
from analyzer.prediction.gpu.tensor_products import (
    Products,
    TensorConstants,
    product_times,
    quantising_times,
)

Values = Mapping[str, float]


@dataclass
class Family:
    """What is fitted together.

    Attributes:
        name: As in the table.
        home: Where its constants stand.
        calls: What was measured, a card each.
        predict: Seconds of a card's calls with these constants.
        naive: The same of the data sheet's roofline.
        parameters: Name, start, low, high.
        widths: What the program's intervals are, below and above, by class of size; of rare calls after these.
        rare: Calls whose interval is counted apart.
    """

    name: str
    home: str
    calls: list[Calls]
    predict: Callable[[Calls, Values], Array]
    naive: Callable[[Calls], Array]
    parameters: tuple[tuple[str, float, float, float], ...]
    widths: tuple[tuple[float, float], ...]
    rare: Callable[[Calls], Array] | None = None
    errors: list[tuple[Calls, Array]] = field(default_factory=list)


LAUNCHED_S = FLOOR_S + GAP_S


def either_way(*widths: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Factors that hold towards less and towards more."""
    return tuple((factor, factor) for factors in widths for factor in factors)


@dataclass(frozen=True)
class ProductType:
    """How a type of products is kept and computed.

    Attributes:
        precision: Whose rate holds.
        faster: Times that rate, by the sheet.
        element_bytes, weight_bytes: Of activations and of weights.
        packed: Whether weights are unpacked on the way.
    """

    precision: str
    element_bytes: float
    weight_bytes: float
    packed: bool = False
    faster: float = 1.0


BF16 = ProductType("bf16", 2.0, 2.0)
INT4 = ProductType("bf16", 2.0, 0.5, packed=True)
INT8 = ProductType("bf16", 2.0, 1.0, packed=True)
FP8 = ProductType("fp8", 1.0, 1.0)


def tensor_constants(values: Values) -> TensorConstants:
    """Constants with some values replaced; those of tiles are ``staged0`` and so on."""
    known = FITTED.products
    given: dict[str, Any] = {name: value for name, value in values.items() if hasattr(known, name)}
    given |= {
        kind: tuple(values.get(f"{kind}{place}", old) for place, old in enumerate(getattr(known, kind)))
        for kind in ("staged", "streamed")
    }
    return replace(known, **given)


def product_seconds(calls: Calls, values: Values, kind: ProductType = BF16) -> Array:
    sheet = sheet_of(calls.card, kind.precision)
    at = replace(sheet, element_bytes=kind.element_bytes)
    m, n, k = calls["m"], calls["n"], calls["k"]
    stored = kind.weight_bytes * k * n
    made = Products(
        batch=np.ones_like(m),
        m=m,
        n=n,
        k=k,
        stored=stored,
        passing=kind.element_bytes * m * k + 2.0 * m * n,
        packed=np.full(m.size, kind.packed),
        kept=calls.columns.get("turns", TURNS) * stored,
    )
    return LAUNCHED_S + product_times(made, at, tensor_constants(values))[0]


def narrow_seconds(calls: Calls, values: Values) -> Array:
    """Products of 8-bit floats with the kernel that quantises their activations."""
    sheet = sheet_of(calls.card, "bf16")
    rate = sheet.rate * sheet.narrow * values["narrow"]
    at = replace(sheet, rate=rate, element_bytes=1.0)
    m, n, k = calls["m"], calls["n"], calls["k"]
    made = Products(
        batch=np.ones_like(m),
        m=m,
        n=n,
        k=k,
        stored=k * n,
        passing=m * k + 2.0 * m * n,
        packed=np.zeros(m.size, dtype=bool),
        kept=TURNS * k * n,
    )
    constants = replace(FITTED.quantising, **{name: one for name, one in values.items() if name != "narrow"})
    quantising = LAUNCHED_S + quantising_times(m, m * k, at, constants)
    return LAUNCHED_S + quantising + product_times(made, at, FITTED.products)[0]


def product_roofline(calls: Calls, kind: ProductType = BF16) -> Array:
    m, n, k = calls["m"], calls["n"], calls["k"]
    peaks = calls.card.peak_flops_per_s
    moved = kind.element_bytes * m * k + kind.weight_bytes * k * n + 2.0 * m * n
    return np.maximum(2 * m * n * k / peaks[kind.precision], moved / calls.card.bandwidth_bytes_per_s)


TENSOR = (
    ("staged1", 0.93, 0.4, 1.0), ("staged3", 0.81, 0.3, 1.2), ("staged4", 0.49, 0.1, 1.2),
    ("streamed0", 0.84, 0.3, 1.0), ("streamed1", 0.99, 0.5, 1.0), ("streamed2", 0.85, 0.2, 1.0),
    ("streamed3", 0.42, 0.1, 1.2), ("streamed4", 0.25, 0.05, 1.2), ("staged_step", 8.9, 1.0, 25.0),
    ("streamed_step", 2.1, 0.3, 25.0), ("efficiency", 0.95, 0.6, 1.0), ("depth", 134.0, 1.0, 400.0),
    ("waves", 0.26, 0.02, 1.0), ("cache", 79.0, 5.0, 200.0), ("split_s", 3.2e-6, 1e-7, 8e-6),
    ("memory", 0.85, 0.6, 1.0),
)  # fmt: skip


def expert_constants(values: Values) -> ExpertConstants:
    """Constants with some values replaced."""
    return replace(FITTED.experts, **values)


def narrow_expert_seconds(calls: Calls, values: Values, *, by_blocks: bool = False) -> Array:
    """Mixtures of 8-bit floats: nothing is fitted to them, but what scales by blocks add."""
    mixtures = replace(expert_mixtures(calls, {}, FP8), by_blocks=np.full(calls.seconds.size, float(by_blocks)))
    constants = replace(FITTED, experts=expert_constants(values))
    return narrow_expert_times(mixtures, sheet_of(calls.card, "bf16"), constants)


def expert_seconds(calls: Calls, values: Values) -> Array:
    at = sheet_of(calls.card, "bf16")
    mixtures = expert_mixtures(calls, values, BF16)
    return expert_times(mixtures, at, expert_constants(values), FITTED.products)


def expert_mixtures(calls: Calls, values: Values, kind: ProductType) -> Mixtures:
    mixtures = Mixtures(
        tokens=calls["tokens"],
        hidden=calls["hidden"],
        inner=calls["inner"],
        chosen=calls["chosen"],
        experts=calls["experts"],
        matrices=np.full(calls.seconds.size, 3.0),
        weight_bytes=np.full(calls.seconds.size, kind.weight_bytes),
        packed=np.full(calls.seconds.size, kind.packed),
        skewed=calls["skewed"],
        kept=np.zeros(calls.seconds.size),
        by_blocks=np.zeros(calls.seconds.size),
    )
    # The same call again and again: the weights of the experts that it hits are all that passes the cache.
    hit = hit_experts(mixtures, expert_constants(values))
    each = 3.0 * mixtures.hidden * mixtures.inner * mixtures.weight_bytes
    return replace(mixtures, kept=hit * each)


def expert_roofline(calls: Calls, kind: ProductType = BF16) -> Array:
    rows, each = calls["tokens"] * calls["chosen"], 3.0 * calls["hidden"] * calls["inner"]
    moved = np.minimum(rows, calls["experts"]) * each * kind.weight_bytes
    peak = calls.card.peak_flops_per_s[kind.precision]
    return np.maximum(2.0 * rows * each / peak, moved / calls.card.bandwidth_bytes_per_s)


EXPERT = (
    ("route_s", 16.7e-6, 2e-6, 60e-6), ("sort_s", 11.9e-6, 1e-6, 60e-6), ("expert_s", 20e-9, 1e-9, 1e-6),
    ("share", 0.73, 0.2, 1.2), ("pass_share", 0.47, 0.05, 3.0), ("hit", 0.87, 0.3, 1.0),
)  # fmt: skip


def attention_calls(calls: Calls) -> Attentions:
    return Attentions(
        batch=calls["batch"],
        queries=calls["query"],
        before=calls["context"],
        heads=calls["heads"],
        key_heads=calls["kv_heads"],
        size=calls["head_dim"],
        window=calls["window"],
        causal=np.ones(calls.seconds.size, dtype=bool),
        cache_bytes=calls["cache_bytes"],
        kept=calls.columns.get("kept", np.zeros(calls.seconds.size)),
    )


def attention_seconds(calls: Calls, values: Values) -> Array:
    made = attention_calls(calls)
    constants = replace(FITTED.attention, **values)
    at = sheet_of(calls.card, "bf16")
    narrow = attention_times(made, replace(at, element_bytes=1.0), constants)[0]
    return np.where(calls["element_bytes"] < 2, narrow, attention_times(made, at, constants)[0])


def attention_roofline(calls: Calls) -> Array:
    made = attention_calls(calls)
    computing = 4.0 * made.batch * made.heads * made.pairs * made.size / calls.card.peak_flops_per_s["bf16"]
    passed = 4.0 * made.batch * made.queries * made.heads * made.size + made.cached
    return np.maximum(computing, passed / calls.card.bandwidth_bytes_per_s)


PREFILL = (
    ("prefill_s", 11.0e-6, 2e-6, 40e-6), ("narrow", 1.33, 1.0, 3.0), ("staged", 0.679, 0.3, 1.2),
    ("streamed", 0.976, 0.3, 2.0), ("wide", 0.847, 0.2, 1.0), ("odd", 0.64, 0.1, 1.0),
    ("widest", 0.421, 0.05, 1.0), ("crowded", 0.672, 0.1, 1.5), ("softmax", 0.071, 0.01, 0.3),
    ("streamed_overlap", 1.77, 1.0, 8.0), ("row_s", 29e-9, 1e-9, 500e-9), ("tile_s", 1.02e-6, 1e-8, 1e-5),
    ("streamed_tile_s", 2.46e-6, 1e-8, 1e-5), ("packing", 0.41, 0.01, 1.0),
    ("streamed_packing", 0.113, 0.01, 1.0), ("key_clocks", 4.3, 0.1, 50.0), ("passes", 1.39, 0.5, 5.0),
    ("narrow_element_s", 335e-12, 1e-12, 2e-9),
)  # fmt: skip
DECODE = (
    ("decode_s", 9.54e-6, 2e-6, 40e-6), ("unpacked", 1.14, 1.0, 3.0), ("memory", 0.928, 0.5, 1.0),
    ("cache_share", 0.894, 0.3, 1.5), ("latency_s", 4.67e-6, 5e-7, 40e-6), ("products", 2.23, 0.5, 12.0),
    ("request_s", 1.31e-6, 1e-7, 1e-5), ("streamed_request_s", 0.85e-6, 1e-7, 1e-5),
    ("streamed_request", 0.78, 0.05, 2.0), ("window_s", 0.98e-6, 1e-8, 1e-5), ("key_s", 23e-9, 1e-9, 1e-7),
)  # fmt: skip


def collective_seconds(calls: Calls, values: Values, kind: Collective, constants: CollectiveConstants) -> Array:
    constants = replace(constants, **values)
    peer = peer_link(calls.card)
    assert peer is not None
    gpus, sizes = calls["gpus"].astype(int).tolist(), calls["bytes"].tolist()
    rates = [reached(constants, count, peer.bandwidth_bytes_per_s) for count in gpus]
    told = calls.columns.get("rate", np.array(rates)).tolist()
    return np.array([
        seconds_at(rate, constants, kind, size, count)
        for rate, size, count in zip(told, sizes, gpus, strict=True)
    ])  # fmt: skip


def collective_roofline(calls: Calls, kind: Collective = "all_reduce") -> Array:
    peer = peer_link(calls.card)
    assert peer is not None
    passes = 2.0 if kind == "all_reduce" else 1.0
    sent: Array = passes * (calls["gpus"] - 1) / calls["gpus"] * calls["bytes"] / peer.bandwidth_bytes_per_s
    return sent


SUMMING = (
    ("start_s", 3e-6, 5e-7, 3e-5), ("member_s", 2e-6, 1e-7, 2e-5), ("share", 0.7, 0.2, 1.2),
    ("shared", 0.1, 0.01, 3.0), ("sharpness", 0.65, 0.3, 2.0),
)  # fmt: skip
# In the table's words.
KINDS: tuple[tuple[Collective, str, bool], ...] = (
    ("all_reduce", "all_reduce", False), ("all_reduce", "all_reduce", True),
    ("all_gather", "all_gather", False), ("reduce_scatter", "reduce_scatter", False),
    ("all_to_all", "alltoall", False),
)  # fmt: skip


def collectives(folder: Path) -> list[Family]:
    """Over NVLink and over PCIe, which nothing relates: of each, one chip is left out.

    To machines where cards on PCIe do not reach each other's memory nothing is fitted: the constants of those
    where they do, and what those machines take beside it. Where each machine's bus bandwidth is told, both
    sorts are one family.
    """
    return [
        Family(
            f"{told_as} over {link}{way}" + (", in graphs" if graph else ""),
            "collectives",
            [one for one in found if one.chip in chips],
            partial(collective_seconds, kind=kind, constants=NCCL[link]["in_graph" if graph else kind]),
            partial(collective_roofline, kind=kind),
            parameters,
            _collective_widths(link, kind, told=way == _TOLD),
        )
        for kind, told_as, graph in KINDS
        for chips, link, way, found, parameters in (
            (("B200",), "NVLink", "", tables.collectives(folder, told_as, graph=graph), SUMMING),
            (_PCIE, "PCIe", "", tables.collectives(folder, told_as, graph=graph), SUMMING),
            (
                _PCIE,
                "PCIe",
                ", through the host",
                tables.collectives(folder, told_as, graph=graph, direct=False),
                (),
            ),
            (_PCIE, "PCIe", _TOLD, tables.told_collectives(folder, told_as, graph=graph), STARTING),
        )
    ]


_PCIE, _TOLD = ("AD102", "GB202"), ", bus bandwidth told"
# What is left to learn where a machine's bus bandwidth is told.
STARTING = tuple(parameter for parameter in SUMMING if "share" not in parameter[0])


def _collective_widths(link: str, kind: Collective, *, told: bool) -> tuple[tuple[float, float], ...]:
    peer = Peer(name=link, bandwidth_bytes_per_s=1.0, latency_s=0.0, source="")
    return tuple(interval_factors(peer, kind, size, measured=told) for size in range(len(SIZES_S) + 1))


_PRODUCTS = "constants.toml: products"


def families(folder: Path) -> list[Family]:
    """All that the tables know."""
    plain = tables.products(folder, "bf16") + tables.layers(folder) + tables.vidur(folder)
    made = [
        Family(
            "products, bf16",
            _PRODUCTS,
            plain,
            product_seconds,
            product_roofline,
            TENSOR,
            either_way(TENSOR_WIDTHS),
        )
    ]
    for name, dtype, kind in (("int4 weights", "int4_wo", INT4), ("int8 weights", "int8_wo", INT8)):
        made.append(
            Family(
                f"products, {name}",
                _PRODUCTS,
                tables.products(folder, dtype),
                partial(product_seconds, kind=kind),
                partial(product_roofline, kind=kind),
                (("packed_s", 2.2e-6, 1e-7, 8e-6), ("row_step", 2.3, 0.3, 20.0)),
                either_way(PACKED_WIDTHS),
            )
        )
    made.append(
        Family(
            "products, fp8, activations quantised",
            "constants.toml: quantising",
            tables.products(folder, "fp8"),
            narrow_seconds,
            partial(product_roofline, kind=FP8),
            (
                ("narrow", 0.86, 0.3, 1.2),
                ("start_s", 3.8e-6, 1e-7, 3e-5),
                ("passes", 1.7, 0.5, 20.0),
                ("element_s", 136e-12, 1e-12, 2e-9),
                ("row_s", 142e-9, 1e-10, 5e-6),
            ),
            either_way(NARROW_WIDTHS),
        )
    )
    made.append(
        Family(
            "experts, bf16",
            "constants.toml: experts",
            tables.experts(folder, "bf16"),
            expert_seconds,
            expert_roofline,
            EXPERT,
            either_way(EXPERT_WIDTHS),
        )
    )
    made += [
        Family(
            f"experts, {name}",
            "constants.toml: experts",
            tables.experts(folder, dtype),
            partial(narrow_expert_seconds, by_blocks=by_blocks),
            partial(expert_roofline, kind=FP8),
            (("blocks", 1.18, 1.0, 2.0),) if by_blocks else (),
            either_way(EXPERT_WIDTHS),
        )
        for name, dtype, by_blocks in (("fp8", "fp8", False), ("fp8 by blocks", "fp8_block", True))
    ]
    for phase, parameters, widths in (
        ("prefill", PREFILL, (PREFILL_WIDTHS, PREFILL_WIDTHS)),
        ("decode", DECODE, (DECODE_WIDTHS, RARE_DECODE_WIDTHS)),
    ):
        made.append(
            Family(
                f"attention, {phase}",
                "constants.toml: attention",
                tables.attention(folder, phase),
                attention_seconds,
                attention_roofline,
                parameters,
                either_way(*widths),
                rare=lambda calls: ~is_ordinary(calls["head_dim"], calls["heads"], calls["kv_heads"]),
            )
        )
    return made + collectives(folder)
