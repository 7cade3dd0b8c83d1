"""Prompts and tokens predicted on this machine's CPU, beside ONNX Runtime's own times of the same steps.

    python benchmarks/generation_cpu.py [--seconds 10] [MODEL ...]

Prints of each model and type of weights the time to the first token and of another one, measured (cache in
place, weights random) and predicted, and predicted over measured. The machine should be idle and calibrated
(``analyze calibrate``); a row says where it was busy.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from analyzer import analyze_generation

PROMPT, OUTPUT = 256, 64


def llama(
    kind: str, hidden: int, inner: int, layers: int, heads: int, keys: int, vocabulary: int
) -> dict[str, Any]:
    """A configuration of the family of LLaMA."""
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": vocabulary,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }


MODELS: dict[str, dict[str, Any]] = {
    "llama 6 x 512": llama("llama", 512, 1408, 6, 8, 4, 32000),
    "gpt2 124M": {
        "model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_positions": 1024, "torch_dtype": "float16",
    },
    # Qwen2 0.5B's published configuration: https://huggingface.co/Qwen/Qwen2-0.5B/blob/main/config.json
    "qwen2 0.5B": llama("qwen2", 896, 4864, 24, 14, 2, 151936),
    "gemma2 8 x 640": {
        **llama("gemma2", 640, 2560, 8, 8, 4, 32000), "head_dim": 80, "sliding_window": 128,
    },
    "mixtral 6 x 512": {
        **llama("mixtral", 512, 1024, 6, 8, 4, 32000), "num_local_experts": 8, "num_experts_per_tok": 2,
    },
}  # fmt: skip


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of runs, for each row")
    given = parser.parse_args()
    print("| model | weights | TTFT measured | predicted | ratio | TPOT measured | predicted | ratio | busy |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    for name in given.models or MODELS:
        for weights in ("bf16", "int4"):
            print(row(name, weights, given.seconds), flush=True)


def row(name: str, weights: str, seconds: float) -> str:
    """One line: the same request run and only predicted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(MODELS[name]), encoding="utf-8")
        run, predicted = (
            analyze_generation(
                path,
                gpu="none",
                prompt=PROMPT,
                output_tokens=OUTPUT,
                weights=weights,
                time_budget=seconds,
                run=here,
            )
            for here in (True, False)
        )
    assert run.generation is not None
    assert predicted.generation is not None
    mine, theirs = predicted.generation.cpu, run.generation.cpu
    assert mine is not None
    assert theirs is not None
    if theirs.origin != "measured":
        return f"| {name} | {weights} | {'; '.join(run.environment.messages)} |"
    cells = [name, "fp32" if weights == "bf16" else weights]
    for measured_s, predicted_s in ((theirs.ttft_s, mine.ttft_s), (theirs.tpot_s, mine.tpot_s)):
        cells += [
            f"{measured_s * 1e3:.2f} ms",
            f"{predicted_s * 1e3:.2f} ms",
            f"{predicted_s / measured_s:.2f}",
        ]
    busy = run.environment.measurement["cpu"]["busy"]
    return f"| {' | '.join([*cells, 'yes' if busy else ''])} |"


if __name__ == "__main__":
    main()
