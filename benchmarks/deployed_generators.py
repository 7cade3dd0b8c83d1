"""Makes language models as GenAI's builder does, with random weights: int4 and fp32, at fixed sizes.

    python -m venv genai && genai/bin/pip install onnxruntime-genai transformers torch onnx
    genai/bin/python benchmarks/deployed_generators.py FOLDER

In an environment of its own: GenAI brings a second onnxruntime. Of each network a step (one token behind a
past) and a prompt (no past) are written, as ``<network>.onnx`` in fp32 and ``<network> blocks ....onnx`` in
int4; ``deployed.py`` compares predictions with measurements on them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from tokenizers import Tokenizer, models

# Sequence and past of each kind of call.
CALLS = {"step": (1, 255), "prompt": (64, 0)}
FORMS = {
    "": ("fp32", ()),
    " blocks 4 of 32": ("int4", ()),
    " blocks 4 of 128": ("int4", ("block_size=128",)),
    " blocks 4 level 1": ("int4", ("accuracy_level=1",)),
}
NETWORKS: dict[str, tuple[str, dict[str, int]]] = {
    "llama": (
        "Llama",
        {
            "hidden_size": 768,
            "intermediate_size": 2048,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "vocab_size": 8000,
        },
    ),
    "qwen": (
        "Qwen2",
        {
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "vocab_size": 16000,
        },
    ),
}


def main() -> None:
    """Writes all models."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, (family, sizes) in NETWORKS.items():
            source = Path(folder) / name
            _save(family, sizes, source)
            for form, (precision, extra) in FORMS.items():
                built = _build(source, Path(folder) / f"{name}{form}", precision, extra)
                for call, (sequence, past) in CALLS.items():
                    bound = _bound(onnx.load(built), sequence, past)
                    onnx.save(bound, target / f"{name}-{call}{form}.onnx")


def _save(family: str, sizes: dict[str, int], folder: Path) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes, max_position_embeddings=2048)
    getattr(transformers, f"{family}ForCausalLM")(config).to(torch.float32).save_pretrained(folder)
    # The builder asks for a tokenizer; nothing is tokenized here.
    words: Any = Tokenizer(models.WordLevel({f"t{index}": index for index in range(100)}, unk_token="t0"))
    tokens = {"unk_token": "t0", "eos_token": "t1", "bos_token": "t2", "pad_token": "t1"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **tokens).save_pretrained(folder)


def _build(source: Path, folder: Path, precision: str, extra: tuple[str, ...]) -> Path:
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", str(source), "-i", str(source)]
    command += ["-o", str(folder), "-p", precision, "-e", "cpu", "-c", str(source / "cache")]
    subprocess.run([*command, *(("--extra_options", *extra) if extra else ())], check=True)
    return folder / "model.onnx"


def _bound(model: onnx.ModelProto, sequence: int, past: int) -> onnx.ModelProto:
    """The model with numbers in the place of its symbols."""
    sizes = {
        "batch_size": 1,
        "sequence_length": sequence,
        "past_sequence_length": past,
        "total_sequence_length": sequence + past,
        "kv_cache_dim": 64,  # of a head: 768 by 12, 512 by 8
    }
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sizes[dim.dim_param]
    return model


if __name__ == "__main__":
    main()
