"""Times to the first and to each other token beside what servers of others were measured at.

Reads ``end_to_end.csv`` and ``models.csv`` of a folder of public measurements (aiconfigurator's published runs,
pipeweave's static batches; see ``prediction.md`` for where they come from) and prints two tables:

* static: a batch that is begun together, nothing else on the card: what is predicted;
* served: a server under load at a fixed concurrency. A step there also reads parts of others' prompts; TPOT is
  compared with a step alone and with one that has its share of a prompt's time (``batch / output`` prompts).
  TTFT there holds the queue, and is not compared.

    python benchmarks/generation.py FOLDER
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from analyzer.devices import catalogue
from analyzer.generation.architecture import Architecture, Attention, Experts, LatentAttention, Layer, Mlp
from analyzer.generation.configurations.quantisation import quantisation_of, stored
from analyzer.generation.configured_model import ConfiguredModel
from analyzer.generation.request import Request, Setting
from analyzer.generation.times import RequestPhases, Runner, timed
from analyzer.options import Weights

_GPUS = {
    "A40": "a40", "L20": "l20", "L40": "l40", "RTX-6000-Ada": "rtx-6000-ada", "RTX-A6000": "rtx-a6000",
    "RTX-PRO-6000-Blackwell-Server": "rtx-pro-6000-server", "B300-SXM": "b300", "GB200": "gb200",
}  # fmt: skip
# nvfp4 has no operator of ONNX: its rows are left out.
_WEIGHTS: Mapping[str, Weights] = {"bf16": "bf16", "fp8": "fp8"}
_MOST_GPUS = 8
# Whose weights in fp8 have a scale for each block of 128 x 128 (``weight_block_size`` of their configurations).
_BY_BLOCKS, _BLOCK = ("deepseek-ai/", "MiniMaxAI/", "Qwen/Qwen3.5", "Qwen/Qwen3-235B-A22B-FP8"), 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measured row: predicted over measured; 0 where it was not measured."""

    group: tuple[str, ...]
    first: float
    other: float
    with_prompts: float
    first_inside: bool
    other_inside: bool


def architecture(row: Mapping[str, str]) -> Architecture:
    """The shape that a row of ``models.csv`` tells."""

    def size(key: str) -> int:
        return int(row[key] or 0)

    kind, heads = row["architecture"], size("heads")
    mixer: Attention | LatentAttention
    if size("kv_lora"):
        mixer = LatentAttention(
            heads=heads, query_rank=size("q_lora"), latent=size("kv_lora"), rotated=size("rope_dim"),
            plain=size("nope_dim"), value_size=size("v_dim"),
        )  # fmt: skip
    else:
        bias = "Qwen2" in kind
        mixer = Attention(
            heads=heads, key_heads=size("kv_heads"), size=size("head_dim"), rotary=size("head_dim"),
            query_bias=bias, key_bias=bias, value_bias=bias, head_norms="Qwen3" in kind,
        )  # fmt: skip
    layers = [Layer(mixer=mixer, mlp=Mlp(inner=size("ffn")))] * size("layers")
    if size("experts"):
        expert = Mlp(inner=size("ffn_expert") or size("ffn"))
        shared = size("shared_experts")
        mixture = Experts(
            count=size("experts"), chosen=size("top_k"), expert=expert,
            shared=Mlp(inner=expert.inner * shared) if shared else None,
        )  # fmt: skip
        dense = size("dense_layers")
        layers[dense:] = [Layer(mixer=mixer, mlp=mixture)] * (len(layers) - dense)
    return Architecture(
        name=row["model"], family=kind, hidden=size("hidden"), vocabulary=size("vocab"), layers=tuple(layers),
        tied=row["tied"] == "True",
    )  # fmt: skip


def _model(row: Mapping[str, str]) -> ConfiguredModel:
    """A model whose own weights are those in fp8, in blocks where its configuration says so."""
    if not row["model"].startswith(_BY_BLOCKS):
        return ConfiguredModel(architecture=architecture(row), own_weights="bf16")
    blocks = {"quant_method": "fp8", "weight_block_size": [_BLOCK, _BLOCK]}
    quantisation = quantisation_of({"quantization_config": blocks})
    assert quantisation is not None
    shape, storage = stored(architecture(row), quantisation)
    return ConfiguredModel(architecture=shape, own_weights="fp8", storage=storage)


def compared(folder: Path, source: str) -> Iterator[Compared]:
    """Every row of a source that can be predicted."""
    with (folder / "models.csv").open(encoding="utf-8") as file:
        models = {row["model"]: _model(row) for row in csv.DictReader(file)}
    with (folder / "end_to_end.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            width = int(row["tp"])
            known = row["gpu"] in _GPUS and row["weights"] in _WEIGHTS and row["model"] in models
            if row["source"] == source and known and width <= _MOST_GPUS:
                yield _compared(row, models[row["model"]], width)


def _compared(row: Mapping[str, str], model: ConfiguredModel, width: int) -> Compared:
    batch, output = int(row["batch"] or 1), int(row["osl"] or 1)
    served = not row["prefill_tokens"]
    # Of a ragged batch the mean length.
    prompt = int(row["isl"]) if served else int(row["prefill_tokens"]) // batch
    device = catalogue.device(_GPUS[row["gpu"]])
    setting = Setting(weights=_WEIGHTS[row["weights"]], cache="bf16", width=width, launch="graph")
    whole, alone = timed(
        model, device, setting,
        [Request(batch=batch, prompt=prompt, output=output), Request(batch=1, prompt=prompt, output=output)],
        Runner(),
    )  # fmt: skip
    return _beside(row, whole, alone, served=served)


def _beside(row: Mapping[str, str], whole: RequestPhases, alone: RequestPhases, *, served: bool) -> Compared:
    first, other = float(row["ttft_s"] or 0), float(row["tpot_s"] or 0)
    waiting = alone.first.value * whole.request.batch / whole.request.output
    one = whole.other
    return Compared(
        group=(row["gpu"], row["model"].rpartition("/")[2], row["weights"], row["tp"]),
        first=0.0 if served or not first else whole.first.value / first,
        other=one.value / other,
        with_prompts=(one.value + waiting) / other,
        first_inside=whole.first.low <= first <= whole.first.high,
        other_inside=one.low <= other <= one.high,
    )


def _shares(ratios: list[float]) -> str:
    off = median(abs(ratio - 1) for ratio in ratios)
    within = sum(0.5 <= ratio <= 2 for ratio in ratios) / len(ratios)
    return f"{off:.1%} | {within:.0%}"


def main(folder: Path) -> None:
    """Prints both tables."""
    static, served = list(compared(folder, "pipeweave")), list(compared(folder, "aiconfigurator"))
    print("| | rows | off, median | within 2x | inside the interval |\n|---|---|---|---|---|")
    inside = sum(row.first_inside for row in static) / len(static)
    print(f"| static, TTFT | {len(static)} | {_shares([row.first for row in static])} | {inside:.0%} |")
    inside = sum(row.other_inside for row in static) / len(static)
    print(f"| static, TPOT | {len(static)} | {_shares([row.other for row in static])} | {inside:.0%} |")
    inside = sum(row.other_inside for row in served) / len(served)
    print(f"| served, a step alone | {len(served)} | {_shares([row.other for row in served])} | {inside:.0%} |")
    print(f"| served, with prompts | {len(served)} | {_shares([row.with_prompts for row in served])} | |")
    print(
        "\n| GPU | model | weights | GPUs | rows | TTFT | TPOT | with prompts |",
        "|---|---|---|---|---|---|---|---|",
        sep="\n",
    )
    groups = defaultdict(list)
    for row in (*static, *served):
        groups[row.group].append(row)
    for group, rows in sorted(groups.items()):
        first = median(row.first for row in rows)
        figures = (median(row.other for row in rows), median(row.with_prompts for row in rows))
        shown = [
            f"{first:.2f}" if first else "–",
            f"{figures[0]:.2f}",
            f"{figures[1]:.2f}" if not first else "–",
        ]
        print(f"| {' | '.join(group)} | {len(rows)} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
