"""What the figures of generation rest on, in sentences."""

from __future__ import annotations

from analyzer.generation.options import Candidate
from analyzer.generation.question import Question
from analyzer.generation.step_sizes import BLOCK


def of(one: Candidate, question: Question) -> tuple[str, ...]:
    """The sentences that hold for an answer."""
    found = [
        "No request waits: a server's queue and its scheduler are not modelled. The batch is begun together, and "
        "all its prompts are read in one step.",
        "Activations are those of that step; servers that read prompts in parts hold less.",
    ]
    if one.setting.weights == "bf16":
        found.append("Operators of bfloat16 are shown as float16: bytes and rates are the same.")
    if one.setting.weights in ("int4", "int8", "fp8"):
        scales = f", one scale for {BLOCK} of them" if one.setting.weights != "fp8" else ""
        found.append(
            f"Weights of the layers' products are {one.setting.weights}{scales}; embedding and head keep 16 bits."
        )
    if one.device.kind == "gpu" and one.setting.launch == "session":
        found.append("The host launches each kernel (`--launch graph`: one replay of a CUDA graph).")
    if one.setting.width > 1:
        found.append(
            f"{one.setting.width} GPUs share each layer and sum its results; operators and plans of this record "
            "are of the whole model on one device."
        )
    if not one.fits:
        found.append("The model does not fit: times are given as if it did.")
    if question.prompt + question.output > one.model.longest:
        found.append("The sequence is longer than the model was made for.")
    return tuple(found)
