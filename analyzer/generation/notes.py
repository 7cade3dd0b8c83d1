"""What the figures of generation rest on, in sentences."""

from __future__ import annotations

from analyzer.devices.peer_links import exchange_notes, peer_link
from analyzer.generation.architecture import Storage
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
        floats = 32 if on_cpu else 16
        own = one.types.own
        if own is not None:
            found.append(
                f"Weights are stored as `quantization_config` says: most in {_word(own)} with a scale for "
                f"{own.shared_by}, those that it leaves out in {floats} bits."
            )
        else:
            scales = f", with a scale for {BLOCK} of them," if setting.weights != "fp8" else ""
            found.append(
                f"The weights of the layers' products are {setting.weights}{scales} those of embedding and "
                f"head {floats} bits wide."
            )
    if one.device.kind == "gpu" and _has_packed_products(one):
        # Llama 3.2 1B (tests/data/gpu), an H100 and an H200: 16 sequences in int4 took 3.1 and 3.0 ms, told at
        # 1.4 and 1.3; prompts of 512 tokens in int4 and int8 1.1 to 1.4 times what was told.
        found.append(
            "Products of packed weights are predicted as fused kernels. ONNX Runtime 1.31 by itself has them "
            "for one row only: on an H100 and an H200 16 sequences took 2.2 to 2.4 times as long, prompts 1.1 "
            "to 1.4 times. The intervals hold both."
        )
        found.append(
            "With one scale for 32 weights, the session's entry `ep.cuda.fpa_intb_gemm` = `1` has them for "
            "more rows: on an H200 16 sequences took 1.9 ms, 3.0 without it, but a token in int4 and prompts "
            "1.2 to 1.3 times as long as without it."
        )
    if one.device.kind == "gpu" and setting.launch == "session":
        found.append("The host launches each kernel; `--launch graph` is one replay of a CUDA graph.")
    if setting.width > 1:
        found.append(
            f"{setting.width} GPUs share each layer and sum its results; operators and plans of this record "
            "are the whole model's on one device."
        )
        peer = peer_link(one.device)
        found += exchange_notes(peer, (setting.width,)) if peer is not None else ()
    if not one.fits:
        found.append("The model does not fit: times are given as if it did.")
    return tuple(found)


def _word(storage: Storage) -> str:
    return storage.weights if storage.is_usual else f"{storage.bits:.3g} bits"


def _has_packed_products(one: Candidate) -> bool:
    sizes = one.request.decode(one.request.middle, one.setting.width)
    step = one.model.step(sizes, one.types, one.device.kind)
    return any(node.op_type == "MatMulNBits" for node in step.graph.graph.nodes)
