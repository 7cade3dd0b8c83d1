"""Public measurements of the kernels of language models, read for ``fit_kernels.py``.

Tables of ai-dynamo/aiconfigurator (kernels inside CUDA graphs) and casys-kaist/LLMServingSim (layers), and
Vidur's layers. ``ai`` times hold the short gap to the next kernel; the weights of a product take turns over
several copies, experts' and attention's do not.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analyzer.devices.catalogue import device
from analyzer.devices.device import Device, peer_link
from analyzer.prediction.collectives import sent_bytes

Array = np.ndarray
# The catalogue's entry, and the chip: cards of one chip are left out together.
CARDS = {
    "L40S": ("l40s", "AD102"),
    "RTX-PRO-6000-Blackwell-Server": ("rtx-pro-6000-blackwell-server", "GB202"),
    "RTX-PRO-6000-Blackwell": ("rtx-pro-6000-blackwell", "GB202"),
    "GB200": ("gb200", "B200"),
    "B300-SXM": ("b300", "B200"),
    "RTX-A6000": ("rtx-a6000", "GA102"),
    "RTX-3090": ("rtx-3090", "GA102"),
    "RTX-4090": ("rtx-4090", "AD102"),
    "A40": ("a40", "GA102"),
    "A100": ("a100-80gb-sxm", "GA100"),
}
# Copies that an engine's weights take turns over (TensorRT-LLM up to 5, vLLM 6; README of the tables).
TURNS = 5.2


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls of one kind on one device.

    Attributes:
        name: The device as the table calls it.
        card, chip: The catalogue's entry, and what is left out with it.
        columns: Numbers of each call.
        seconds: What each took.
        weight: How much it counts in a fit.
    """

    name: str
    card: Device
    chip: str
    columns: Mapping[str, Array]
    seconds: Array
    weight: float = 1.0

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def some(self, chosen: Array) -> Calls:
        """Some of the calls."""
        fewer = {name: column[chosen] for name, column in self.columns.items()}
        return replace(self, columns=fewer, seconds=self.seconds[chosen])


def rows(path: Path) -> list[dict[str, str]]:
    """Lines of a table, packed or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(text.splitlines()))


def by_card(
    found: Iterable[tuple[str, tuple[float, ...], float]], names: tuple[str, ...], weight: float = 1.0
) -> list[Calls]:
    """Calls of each card; the geometric mean of what engines took for one shape."""
    times: dict[str, dict[tuple[float, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, shape, seconds in found:
        times[name][shape].append(seconds)
    calls = []
    for name, shapes in times.items():
        slug, chip = CARDS[name.partition("/")[0]]
        table = np.array(list(shapes), dtype=float).T
        means = np.array([np.exp(np.mean(np.log(each))) for each in shapes.values()])
        columns = dict(zip(names, table, strict=True))
        calls.append(
            Calls(name=name, card=device(slug), chip=chip, columns=columns, seconds=means, weight=weight)
        )
    return calls


def products(folder: Path, dtype: str) -> list[Calls]:
    """Products [m, k] x [k, n] of one type."""
    return by_card(
        (
            (row["gpu"], (float(row["m"]), float(row["n"]), float(row["k"])), float(row["time_s"]))
            for row in rows(folder / "gemm.csv.gz")
            if row["dtype"] == dtype
        ),
        ("m", "n", "k"),
    )


def layers(folder: Path) -> list[Calls]:
    """Products of layers on further cards, timed by PyTorch's profiler or by hooks in vLLM."""
    models = {row["model"].rpartition("/")[2]: row for row in rows(folder / "models.csv")}
    models["Llama-3.1-8B"] = models["Llama-3.1-8B-Instruct"]
    found = []
    for row in rows(folder / "layers.csv"):
        shape = _layer_shape(row, models[row["model"].rpartition("/")[2]])
        if shape is not None:
            found.append((row["gpu"], (float(row["tokens"]), *shape), float(row["time_s"])))
    return by_card(found, ("m", "n", "k"), weight=0.4)


def _layer_shape(row: Mapping[str, str], model: Mapping[str, str]) -> tuple[float, float] | None:
    """Columns and inner dimension of a layer's product; None for what is none, or in parts not told."""
    split = float(row["tp"])
    hidden, size = float(model["hidden"]), float(model["head_dim"])
    queries, keys = float(model["heads"]) * size / split, float(model["kv_heads"]) * size / split
    # Of mixtures the table's width is an expert's or a shared layer's: not told which.
    inner = 0.0 if model["experts"] else float(model["ffn"]) / split
    shapes = {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
        "qkv_proj": (queries + 2 * keys, hidden),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "gate_up_proj": (2 * inner, hidden),
        "down_proj": (hidden, inner),
    }
    # v0's lm_head is of the last tokens alone.
    if row["profiler"] == "v1":
        shapes["lm_head"] = (float(model["vocab"]) / split, hidden)
    shape = shapes.get(row["layer"])
    return None if shape is None or 0.0 in shape else shape


def vidur(folder: Path) -> list[Calls]:
    """Products of layers in fp16 on A40 and A100."""
    found = []
    for row in rows(folder / "vidur_llm_layer_ops.csv"):
        tokens, split = float(row["num_tokens"]), float(row["num_tensor_parallel_workers"])
        heads, shared = float(row["n_head"]), float(row["n_kv_head"])
        width, wide = float(row["n_embd"]), float(row["n_expanded_embd"])
        gates = 2.0 if row["use_gated_mlp"] == "True" else 1.0
        shapes = {
            "attn_pre_proj_ms": ((heads + 2 * shared) * width / heads / split, width),
            "attn_post_proj_ms": (width, width / split),
            "mlp_up_proj_ms": (gates * wide / split, width),
            "mlp_down_proj_ms": (width, wide / split),
        }
        for name, (n, k) in shapes.items():
            if row[name]:
                found.append((row["gpu"], (tokens, n, k), float(row[name]) * 1e-3))
    return by_card(found, ("m", "n", "k"), weight=0.4)


ATTENTION = (
    "batch",
    "query",
    "context",
    "heads",
    "kv_heads",
    "head_dim",
    "element_bytes",
    "cache_bytes",
    "window",
)
_BYTES = {"bf16": 2.0, "fp8": 1.0}


def attention(folder: Path, phase: str) -> list[Calls]:
    """Calls of attention, causal, the write to the cache included; Triton's kernels left out."""
    names = ("batch", "query_tokens", "context_tokens", "heads", "kv_heads", "head_dim")
    return by_card(
        (
            (
                row["gpu"],
                (
                    *(float(row[name]) for name in names),
                    _BYTES[row["dtype"]],
                    _BYTES[row["kv_dtype"]],
                    float(row["window"]),
                ),
                float(row["time_s"]),
            )
            for row in rows(folder / "attention.csv.gz")
            if row["phase"] == phase and "triton" not in row["kernel"]
        ),
        ATTENTION,
    )


EXPERTS = ("tokens", "hidden", "inner", "chosen", "experts", "skewed")


def experts(folder: Path, dtype: str) -> list[Calls]:
    """Mixtures of experts, gated, on one rank or two: with more, engines count tokens differently.

    Blackwell's Triton and FlashInfer CUTLASS kernels, which are two to three times slower than TensorRT-LLM's
    there, are left out.
    """
    slow = ("triton", "flashinfer_cutlass")

    def wanted(row: Mapping[str, str]) -> bool:
        fast = CARDS[row["gpu"]][1] != "B200" or not any(name in row["kernel"] for name in slow)
        return row["dtype"] == dtype and float(row["ep"]) <= 2 and "nongated" not in row["kernel"] and fast

    return by_card(
        (
            (
                row["gpu"],
                (
                    float(row["tokens"]),
                    float(row["hidden"]),
                    float(row["ffn"]) / float(row["tp"]),
                    float(row["top_k"]) / float(row["ep"]),
                    float(row["experts"]) / float(row["ep"]),
                    float(row["distribution"] != "balanced"),
                ),
                float(row["time_s"]),
            )
            for row in rows(folder / "moe.csv")
            if wanted(row)
        ),
        EXPERTS,
    )


# Of a link's bandwidth: what sums of 32 MB and more reach where GPUs on PCIe write to each other's memory is
# above it, where all goes through the host's memory below; no machine of the tables lies between 0.28 and 0.40.
DIRECT_SHARE = 1 / 3
_LARGE_SUM = 32e6


def collectives(folder: Path, op: str, *, graph: bool, direct: bool = True) -> list[Calls]:
    """Collectives of NCCL, or of the engines' own kernels inside CUDA graphs.

    Args:
        folder: Where the table is.
        op: In its words.
        graph: Whether of engines.
        direct: Of cards on PCIe the machines where they reach each other's memory, or the others.
    """
    table = rows(folder / "allreduce.csv")
    shares = _shares_of_the_link(table)

    def wanted(row: Mapping[str, str]) -> bool:
        if row["op"] != op or (row["engine"] != "nccl") != graph or "eager" in row["kernel"]:
            return False
        return "PCIe" not in row["link"] or (shares[_machine(row)] > DIRECT_SHARE) == direct

    return by_card(
        (
            (row["gpu"], (float(row["gpus"]), float(row["bytes"])), float(row["time_s"]))
            for row in table
            if wanted(row)
        ),
        ("gpus", "bytes"),
    )


def told_collectives(folder: Path, op: str, *, graph: bool) -> list[Calls]:
    """Collectives of cards on PCIe, with what the largest sum of their machine reached as a column.

    That sum itself is left out.
    """
    table = [row for row in rows(folder / "allreduce.csv") if "PCIe" in row["link"]]
    largest: dict[tuple[str, ...], Mapping[str, str]] = {}
    for row in table:
        best = largest.get(_machine(row))
        if row["op"] == "all_reduce" and (best is None or float(row["bytes"]) > float(best["bytes"])):
            largest[_machine(row)] = row

    def rate(row: Mapping[str, str]) -> float:
        told = largest[_machine(row)]
        return sent_bytes("all_reduce", float(told["bytes"]), float(told["gpus"])) / float(told["time_s"])

    return by_card(
        (
            (row["gpu"], (float(row["gpus"]), float(row["bytes"]), rate(row)), float(row["time_s"]))
            for row in table
            if row["op"] == op and (row["engine"] != "nccl") == graph and row not in largest.values()
            if "eager" not in row["kernel"]
        ),
        ("gpus", "bytes", "rate"),
    )


def _machine(row: Mapping[str, str]) -> tuple[str, ...]:
    """What was measured together: versions had machines of their own, and pairs and fours lie differently."""
    return tuple(row[name] for name in ("gpu", "engine", "version", "gpus"))


def _shares_of_the_link(table: Sequence[Mapping[str, str]]) -> dict[tuple[str, ...], float]:
    """Of the link's bandwidth, what large sums of each machine reach."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in table:
        gpus, nbytes = float(row["gpus"]), float(row["bytes"])
        if row["op"] == "all_reduce" and nbytes > _LARGE_SUM:
            peer = peer_link(device(CARDS[row["gpu"]][0]))
            assert peer is not None
            sent = sent_bytes("all_reduce", nbytes, gpus)
            found[_machine(row)].append(sent / float(row["time_s"]) / peer.bandwidth_bytes_per_s)
    return {machine: float(np.median(shares)) for machine, shares in found.items()}
