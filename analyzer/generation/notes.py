"""What the figures of generation rest on, in sentences."""

from __future__ import annotations

from analyzer.generation.options import Candidate
from analyzer.generation.steps.step_sizes import BLOCK


def of(one: Candidate) -> tuple[str, ...]:
    """The sentences that hold for an answer."""
    setting = one.setting
    found = [
        "No request waits: a server's queue and its scheduler are not modelled. "
        "The batch is begun together, and all its prompts are read in one step.",
        "Activations are those of that step; servers that read prompts in parts hold less.",
    ]
    written, on_cpu = one.model.exporter == "config", one.device.kind == "cpu"
    if on_cpu and written:
        found.append("ONNX Runtime's CPU provider computes in 32 bits: floats of 16 are kept as wide.")
    elif setting.weights == "bf16" and written:
        found.append("Operators of bfloat16 are shown as float16: bytes and rates are the same.")
    if setting.weights in ("int4", "int8", "fp8") and written:
        scales = f", with a scale for {BLOCK} of them," if setting.weights != "fp8" else ""
        found.append(
            f"The weights of the layers' products are {setting.weights}{scales} those of embedding and head "
            f"{32 if on_cpu else 16} bits wide."
        )
    is_predicted = one.phases.other.origin == "predicted"
    if one.device.kind == "gpu" and setting.weights in ("int4", "int8") and is_predicted:
        # Llama 3.2 1B (tests/data/gpu): 16 sequences in int4 3.1 ms on an H100 and 3.0 on an H200, predicted at
        # 1.4 and 1.3; a prompt of 512 tokens 3.8 ms, predicted at 2.9.
        found.append(
            f"Products of {setting.weights} weights are timed as fused kernels. ONNX Runtime 1.31 by itself "
            "has them for one row only: on an H100 and H200 16 sequences took 2.4 times as long, prompts 1.3 "
            "times. The interval holds both."
        )
        found.append(
            "With one scale for 32 weights, the session's entry `ep.cuda.fpa_intb_gemm` = `1` has them for "
            "more rows: on an H200 16 sequences took 1.6 times less than without it, a token in int4 and "
            "prompts 1.3 times more."
        )
    if one.device.kind == "gpu" and setting.launch == "session":
        found.append("The host launches each kernel; `--launch graph` is one replay of a CUDA graph.")
    if setting.width > 1:
        found.append(
            f"{setting.width} GPUs share each layer and sum its results; operators and plans of this record "
            "are the whole model's on one device."
        )
    if not one.fits:
        found.append("The model does not fit: times are given as if it did.")
    return tuple(found)
