"""How far the planned peak of memory is from what ONNX Runtime's arena shows on this machine's CPU.

    python benchmarks/memory.py [--samples mlp,lstm,...]

Activations alone: what the arena holds when a run begins (weights that were copied or packed) is taken off, and
our figure leaves the inputs out, which the caller holds. Columns, in MB:

- "weights": of the graph; ONNX Runtime maps those that lie beside the file, so they need not be in its arena.
- "alive": ``peak_memory_bytes``, the most that is alive at once, operator by operator.
- "planned": ``SessionPlan.peak_bytes`` of what ONNX Runtime is predicted to execute, which the report shows.
- "unfused": most bytes that a session asked its arena for and held after an operator, with no graph
  optimization, no packed weights and no planned blocks. It computes in the run what an optimized graph holds
  ready (transposed weights).
- "fused": the same with every optimization, as ``analyze`` measures.
- "+ scratch": the fused session's highest use within operators as well: their own buffers and the
  arena's rounding.
- "packed": what the ordinary session's arena holds before its first run.
- "arena": that session's highest use in all, which a measurement reports.

The first ratio is "planned" over "fused", the second "planned" plus "packed" over "arena".

Why "planned" is not "alive", as the arena's state after every node of the samples shows:

- resnet50 needs less: a convolution in blocks adds a residual branch in that branch's own buffer, and the
  convolution that a block's shortcut needs runs after the two before it, not in the file's order.
- bert_base needs over twice as much: a buffer that a later node of the same shape takes over is never given
  back in between, so that one buffer of each shape (heads, their transposes, scores, the MLP) is held at once.
- unet needs half as much again: its transposed convolutions have no blocked kernel, so that each Concat before
  a convolution is held twice, as it is and in blocks.

What is left out: kernels' own buffers ("+ scratch"; recurrent layers, attention and depthwise convolutions take
most) and rounding to 256 bytes. The plan of ordinary sessions puts the same buffers into one block at offsets,
and packs weights: the second ratio is below 1 by that, by the scratch and by the arena's doubling chunks.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.weights import materialise
from analyzer.measurement import profile
from analyzer.memory.fit import peak_memory_bytes
from analyzer.memory.session_plan import SessionPlan
from analyzer.ort.fusion import predicted_groups

SAMPLES = Path(__file__).parents[1] / "samples"
BATCHES = {"mlp": 64, "lstm": 4, "resnet50": 1, "mobilenet_v2": 1, "bert_base": 1, "gpt2": 1, "unet": 1}


@dataclass(frozen=True, kw_only=True)
class Session:
    """An arena's bytes in a session.

    Attributes:
        start: Held before the first run.
        held: Most that was asked for and still held after an operator of the first run, less ``start``.
        scratch: The same within operators as well, in whole chunks.
        peak: Highest use of all runs.
    """

    start: int
    held: int
    scratch: int
    peak: int


def session(path: Path, feeds: Mapping[str, Any], folder: Path, *, optimized: bool, packed: bool) -> Session:
    """Two runs of a model in a session of its own, profiled."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / f"profile{optimized}{packed}")
    options.log_severity_level = 3
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    options.enable_mem_pattern = packed
    options.add_session_config_entry("session.disable_prepacking", "0" if packed else "1")
    running = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for _ in range(2):
        running.run(None, dict(feeds))
    events = profile.read(Path(running.end_profiling()))
    states = [event["args"] for event in events if "mem_in_use_peak" in event.get("args", {})]
    return of_states(
        [{name: int(state[name]) for name in state if name.startswith("mem_")} for state in states]
    )


def of_states(states: Sequence[Mapping[str, int]]) -> Session:
    """The figures from the arena's states after each operator of two runs."""
    first, once = states[0], states[: len(states) // 2]
    start = first["mem_bytes_in_use"] - first["mem_in_use_delta"]
    asked = first["mem_bytes_requested_in_use"] - first["mem_requested_in_use_delta"]
    return Session(
        start=start,
        held=max(state["mem_bytes_requested_in_use"] for state in once) - asked,
        scratch=max(state["mem_in_use_peak"] for state in once) - start,
        peak=max(state["mem_in_use_peak"] for state in states),
    )


def row(sample: str, folder: Path) -> str:
    """A sample's line."""
    loaded = load(parse_reference(str(SAMPLES / f"{sample}.py")), batch=BATCHES.get(sample))
    graph = loaded.graph()
    alive = peak_memory_bytes(graph, inputs=False)
    planned = SessionPlan.of(graph, predicted_groups(graph, "cpu")).peak_bytes("cpu", inputs=False)
    if alive is None or planned is None:
        return f"{sample:<14} a size is not known"
    runnable = materialise(loaded, loaded.batch, folder)
    path, feeds = Path(runnable.model_path), runnable.feeds
    unfused = session(path, feeds, folder, optimized=False, packed=False)
    fused = session(path, feeds, folder, optimized=True, packed=False)
    full = session(path, feeds, folder, optimized=True, packed=True)
    sizes = (
        graph.parameter_bytes,
        alive,
        planned,
        unfused.held,
        fused.held,
        fused.scratch,
        full.start,
        full.peak,
    )
    columns = "".join(f"{size / 1e6:>11.3f}" for size in sizes)
    ratios = f"{planned / fused.held:>8.3f}{(planned + full.start) / full.peak:>8.2f}"
    return f"{sample:<14}{loaded.batch:>4}{columns}{ratios}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default=",".join(BATCHES))
    names = ("weights", "alive", "planned", "unfused", "fused", "+ scratch", "packed", "arena")
    print(f"{'sample':<14}{'n':>4}" + "".join(f"{name:>11}" for name in names) + f"{'ratio':>8}{'arena':>8}")
    for sample in parser.parse_args().samples.split(","):
        with tempfile.TemporaryDirectory(prefix="analyzer-memory-") as folder:
            print(row(sample, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
