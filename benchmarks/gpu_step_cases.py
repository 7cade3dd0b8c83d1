"""Whole steps of models that generate, for ``gpu_families.py``: prompts and tokens, with random weights.

The graphs are those that ``analyze generate`` predicts and runs, so that what it says of a card can be held
against what the card did. Layers and vocabularies are those of the published configurations, but for the small
mixture; positions are enough for the steps. Weights are written to the temporary folder: 26 GB of all models.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gpu_family_networks import Case, Fed


def _llama(
    kind: str, hidden: int, inner: int, layers: int, heads: tuple[int, int], vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": kind, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "vocab_size": vocabulary,
        "max_position_embeddings": 32768, "tie_word_embeddings": True, "torch_dtype": "float16", **more,
    }  # fmt: skip


MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_positions": 2048, "torch_dtype": "float16",
    },
    "qwen2 0.5b": _llama("qwen2", 896, 4864, 24, (14, 2), 151936),
    "llama 3.2 1b": _llama("llama", 2048, 8192, 16, (32, 8), 128256),
    "gemma2 2b": _llama("gemma2", 2304, 9216, 26, (8, 4), 256000, head_dim=256, sliding_window=4096),
    "phi3 mini": _llama("phi3", 3072, 8192, 32, (32, 32), 32064, tie_word_embeddings=False),
    "llama 3.1 8b": _llama("llama", 4096, 14336, 32, (32, 8), 128256, tie_word_embeddings=False),
    "mixtral 6 x 1024": _llama(
        "mixtral", 1024, 3584, 6, (16, 8), 32000, num_local_experts=8, num_experts_per_tok=2
    ),
}  # fmt: skip
_PROMPT, _TOKEN, _TOKENS_OF_16, _PROMPTS_OF_8 = (1, 512, 512), (1, 1, 1024), (16, 1, 1024), (8, 256, 256)
_ALL = (_PROMPT, _TOKEN, _TOKENS_OF_16, _PROMPTS_OF_8)
# Model, weights, and steps: sequences, tokens of each, and the context that the last one sees.
STEPS: tuple[tuple[str, str, tuple[tuple[int, int, int], ...]], ...] = (
    ("gpt2", "fp16", _ALL),
    ("qwen2 0.5b", "fp16", _ALL),
    ("qwen2 0.5b", "int4", (_PROMPT, _TOKEN)),
    ("llama 3.2 1b", "fp16", (*_ALL, (1, 1, 16384))),
    ("llama 3.2 1b", "int4", (_PROMPT, _TOKEN, _TOKENS_OF_16)),
    ("llama 3.2 1b", "int8", (_PROMPT, _TOKEN)),
    ("gemma2 2b", "fp16", (_PROMPT, _TOKEN)),
    ("phi3 mini", "fp16", (_PROMPT, _TOKEN)),
    ("llama 3.1 8b", "int4", (_PROMPT, _TOKEN)),
    ("mixtral 6 x 1024", "fp16", (_PROMPT, _TOKEN)),
)


# ONNX Runtime 1.31 multiplies by packed weights in one kernel where it is told to and 32 of them have one scale
# (contrib_ops/cuda/quantization/matmul_nbits.h and docs/contrib_ops/cuda/matmul_nbits.md there).
_FUSED = {"ep.cuda.fpa_intb_gemm": "1", "ep.cuda.fpa_intb_profile_m": "1,16,512"}
_BLOCK = 32


_folders: list[tempfile.TemporaryDirectory[str]] = []


def steps() -> Iterator[Case]:
    """Each step of each model; the files that they are run from are written when they are asked for."""
    for name, weights, sizes in STEPS:
        for batch, tokens, context in sizes:
            yield _case(name, weights, batch, tokens, context)


def fused_steps() -> Iterator[Case]:
    """Packed weights, 32 of one scale, multiplied in one kernel and as ONNX Runtime does by itself."""
    for name, weights, sizes in (
        ("llama 3.2 1b", "int4", (_PROMPT, _TOKEN, _TOKENS_OF_16)),
        ("llama 3.2 1b", "int8", (_PROMPT, _TOKEN)),
    ):
        for each in sizes:
            for fused in (0, 1):
                yield _case(name, weights, *each, block=_BLOCK, fused=fused)


@cache
def model_of(name: str) -> Any:
    """The model of a configuration (``analyzer.generation.times.GeneratingModel``)."""
    from analyzer.generation.sources import from_configuration

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(MODELS[name]), encoding="utf-8")
        return from_configuration(str(path)).model


@cache
def _files(name: str, weights: str) -> Any:
    from analyzer.loading.runnable_files import RandomWeights

    folder = tempfile.TemporaryDirectory(prefix="gpu-steps-")
    _folders.append(folder)  # removed with the process
    return RandomWeights(folder=Path(folder.name))


def _case(
    name: str,
    weights: str,
    batch: int,
    tokens: int,
    context: int,
    *,
    block: int | None = None,
    fused: int | None = None,
) -> Case:
    from analyzer.generation.request import BLOCK, StepSizes, StepTypes
    from analyzer.pipeline.generation_measure import in_place, step_inputs

    sizes = StepSizes(batch=batch, tokens=tokens, context=context)
    types = StepTypes(weights=weights, block=block or BLOCK)  # type: ignore[arg-type]
    graph = model_of(name).whole_step(sizes, types)
    places = {key: values for key, values in step_inputs(graph, sizes).items() if key not in graph.carried}
    told: dict[str, int | str] = {"model": name, "weights": weights}
    told |= {"batch": batch, "tokens": tokens, "context": context}
    if block is not None:
        told |= {"block": block, "fused": fused or 0}
    file = f"step-{batch}-{tokens}-{context}-{block}.onnx"
    return Case(
        family="generation" if block is None else "fused weights",
        sizes=told,
        model=lambda: _files(name, weights).write(graph, file),
        fed={
            tensor.name: Fed(shape=tuple(tensor.shape), dtype=tensor.dtype.name, values=places.get(tensor.name))
            for tensor in graph.inputs
        },
        shared={present: past for past, present in in_place(graph).items()},
        optimized=True,
        entries=_FUSED if fused else {},
    )
