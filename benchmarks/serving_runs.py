"""How continuous batching comes out beside servers that were measured request by request.

    python benchmarks/serving_runs.py serving_runs.csv

The file has a row for each request of a vLLM server under a burst that it could not keep up with: gpu, model,
input_tokens, output_tokens, arrival_s, first_token_s, last_token_s. Weights and caches are taken to be of 16
bits, on one GPU by a CUDA graph; how many sequences the server allowed at once is not told.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.arrays import Floats, Ints
from analyzer.devices import catalogue
from analyzer.generation.answer import setting_of
from analyzer.generation.times import Runner
from analyzer.pipeline.capacity.generation import DECODE_BATCHES, GenerationService
from analyzer.pipeline.capacity.traffic import CapacityQuestion
from analyzer.pipeline.generation import generation_with_basis
from analyzer.serving.continuous import Conversations, GenerationServer, _Lane, _Requests, _serve
from analyzer.serving.search import GenerationDemand

_LLAMA = {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}
_QWEN = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
    "head_dim": 128,
    "vocab_size": 151936,
}
# Sizes as their makers publish them.
MODELS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": _LLAMA
    | {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
    "Qwen3-32B": _QWEN
    | {
        "model_type": "qwen3",
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "max_position_embeddings": 40960,
    },
    "Qwen3-30B-A3B-Instruct-2507": _QWEN
    | {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}
GPUS = {"RTX-4090": "rtx-4090", "RTX-PRO-6000-Blackwell": "rtx-pro-6000-blackwell"}


@dataclass(frozen=True)
class Run:
    """A measured run; times in seconds, ``[requests]``."""

    gpu: str
    model: str
    conversations: Conversations
    arrivals: Floats
    first: Floats
    last: Floats


def replayed(
    server: GenerationServer, arrivals_s: Floats, conversations: Conversations
) -> tuple[Floats, Floats]:
    """When each of these very requests has its first and its last token, seconds; arrivals rise."""
    lane = _Lane(
        arrivals=arrivals_s,
        prompts=conversations.prompts,
        outputs=conversations.outputs,
        prefill=server.prefill_s(conversations.prompts.astype(np.float64)),
        left_out=0,
    )
    first, last, _ = _serve(_Requests([lane], [server], np.array([0])))
    return first, last


def main() -> None:
    print("| GPU, model | requests | | first token, mean | each further one, mean | all answered |")
    print("|---|---:|---|---:|---:|---:|")
    for run in _runs(Path(sys.argv[1])):
        name = f"{run.gpu}, {run.model}"
        print(f"| {name} | {len(run.arrivals)} | measured | {_figures(run, run.first, run.last)} |")
        for end, server in zip(("predicted", "quick end", "slow end"), _servers(run), strict=True):
            first, last = replayed(server, run.arrivals, run.conversations)
            print(f"| | | {end} | {_figures(run, first, last)} |", flush=True)


def _runs(path: Path) -> Iterator[Run]:
    def which(row: dict[str, str]) -> tuple[str, str]:
        return row["gpu"], row["model"]

    with path.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (which(row), float(row["arrival_s"])))
    for (gpu, model), of_run in groupby(rows, which):
        every = list(of_run)

        def column(name: str, rows: list[dict[str, str]] = every) -> Floats:
            return np.array([float(row[name]) for row in rows])

        yield Run(
            gpu=gpu,
            model=model,
            conversations=Conversations(
                prompts=_whole(column("input_tokens")), outputs=_whole(column("output_tokens"))
            ),
            arrivals=column("arrival_s"),
            first=column("first_token_s"),
            last=column("last_token_s"),
        )


def _whole(values: Floats) -> Ints:
    return values.astype(np.int64)


def _servers(run: Run) -> tuple[GenerationServer, ...]:
    gpu, asked = catalogue.device(GPUS[run.gpu]), run.conversations
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODELS[run.model]))
        _, basis = generation_with_basis(
            folder,
            None,
            {
                "gpu": gpu.slug,
                "run": False,
                "launch": "graph",
                "prompt": int(asked.prompts.mean()),
                "output_tokens": int(asked.outputs.mean()),
            },
            lambda _stage, _share: None,
        )
    demand = GenerationDemand(rate_per_s=1.0, conversations=asked, limit_s=1.0)
    question = CapacityQuestion(rate_per_s=1.0, limit_option="", growth=1.0, arrivals="poisson", demand=demand)
    setting = setting_of(basis.model, basis.question, gpu)
    server = GenerationService(basis, question).server(gpu, setting, DECODE_BATCHES, Runner())
    assert server is not None
    return server.times, server.quick, server.slow


def _figures(run: Run, first: Floats, last: Floats) -> str:
    ttft = (first - run.arrivals).mean()
    tpot = ((last - first) / np.maximum(run.conversations.outputs - 1, 1)).mean()
    return f"{ttft:.2f} s | {1e3 * tpot:.1f} ms | {last.max():.0f} s"


if __name__ == "__main__":
    main()
