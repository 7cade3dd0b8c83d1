"""What whole networks take on this machine's GPU under ONNX Runtime, by batch, in TF32 and fp16, by operator.

    python benchmarks/gpu_networks.py [--output networks.json] [--minutes 6] [--only resnet50,unet]
                                            [--types tf32,fp16] [--provider cuda]

Each case is a sample at a batch, with random weights of its sizes, measured as ``analyze`` measures: with its
copies, with inputs and outputs on the GPU, as one CUDA graph, and its operators by CUPTI. Batches go up to
where the GPU, not the host, is what takes the time. It needs no installation and no network; a case is a
process of its own. With ``--provider cpu`` the same on the CPU: a check that the files are right.

A record of a real card, kept under tests/data/gpu/, is what predictions are compared with
(``recorded_networks.py``); no constant of a kernel is fitted to it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda_record import Record, summary
from gpu_family_networks import Case, Fed

if TYPE_CHECKING:
    from analyzer.graph import Graph, Tensor
    from analyzer.loading.runnable_files import RandomWeights

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
BATCHES = {
    "resnet50": (1, 8, 32, 128),
    "mobilenet_v2": (1, 8, 32, 128),
    "unet": (1, 4, 16),
    "vit_b16": (1, 8, 64),
    "bert_base": (1, 8, 64),
    "gpt2": (1, 8),
}
TYPES = ("tf32", "fp16")
# A case's runs, and about what its process needs beside them.
_BUDGET_S, _LEAST_S = 0.8, 15


def main() -> int:
    """All cases, in an order shuffled once and for all: a run that is cut short has all kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("gpu-networks.json"))
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--only", default=",".join(BATCHES), help="samples, by name")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from analyzer.loading.runnable_files import RandomWeights

    record = Record(asked.output, asked.minutes)
    record.put("rows", {"network": []})
    if asked.provider == "cuda":
        from cuda_parts import apart

        for part in ("machine", "CUDA"):
            record.step(part, 0, lambda part=part: apart(record, part, 1.0))
    names = asked.only.split(",")
    with tempfile.TemporaryDirectory(prefix="gpu-networks-") as folder:
        loaded: dict[str, Any] = {}
        files: dict[Path, RandomWeights] = {}
        for name in names:
            record.step(f"{name}: export", _LEAST_S, lambda name=name: loaded.update({name: load(name)}))
        cases = [
            (name, kind, batch) for name in loaded for kind in asked.types.split(",") for batch in BATCHES[name]
        ]
        random.Random(0).shuffle(cases)
        for name, kind, batch in cases:
            graph = graph_of(loaded[name], kind, batch)
            home = Path(folder) / name / kind
            home.mkdir(parents=True, exist_ok=True)
            weights = files.setdefault(home, RandomWeights(folder=home))
            record.step(
                f"{name} {kind} {batch}",
                _LEAST_S,
                lambda: record.values["rows"]["network"].append(
                    {"model": name, "type": kind, "batch": batch, **measured(graph, weights, asked.provider)}  # noqa: B023
                ),
            )
    record.put("complete", not record.values["left_out"])
    print(f"{len(record.values['rows']['network'])} of {len(cases)} cases")
    return 0


def load(name: str) -> Any:
    """A sample, loaded (``analyzer.loading.loaded.Loaded``)."""
    from analyzer.loading.load import load as load_model
    from analyzer.loading.model_reference import parse_reference

    return load_model(parse_reference(str(SAMPLES / f"{name}.py")), use_cache=False)


def graph_of(loaded: Any, kind: str, batch: int) -> Graph:
    """A sample at a batch, its floats in 16 bits where asked."""
    from analyzer.conversion.convert import in_floats

    graph: Graph = loaded.graph(batch)
    return in_floats(graph, "float16") if kind == "fp16" else graph


def cases() -> Iterator[Case]:
    """The same networks for ``gpu_families.py``, which has a figure for each in a tenth of the time."""
    yield from _cases("network", BATCHES)


# Of the CUDA provider, for convolutions: biases added by cuDNN, images channels last.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "fuse": {"fuse_conv_bias": "1"},
    "last": {"prefer_nhwc": "1"},
    "both": {"fuse_conv_bias": "1", "prefer_nhwc": "1"},
}


def options() -> Iterator[Case]:
    """Convolutional networks with each choice of the provider's options for convolutions."""
    for case in _cases("option", {"resnet50": (1, 32), "mobilenet_v2": (1, 32), "unet": (1, 4)}):
        for name, chosen in OPTIONS.items():
            yield replace(case, sizes={**case.sizes, "options": name}, cuda=chosen)


def _cases(family: str, batches_of: Mapping[str, tuple[int, ...]]) -> Iterator[Case]:
    from analyzer.loading.runnable_files import RandomWeights

    for name, batches in batches_of.items():
        loaded = load(name)
        for kind in TYPES:
            folder = tempfile.TemporaryDirectory(prefix="gpu-networks-")
            _folders.append(folder)  # removed with the process
            weights = RandomWeights(folder=Path(folder.name))
            for batch in batches:
                graph = graph_of(loaded, kind, batch)
                yield Case(
                    family=family,
                    sizes={"model": name, "type": kind, "batch": batch},
                    model=partial(weights.write, graph, f"{batch}.onnx"),
                    fed={tensor.name: _fed(tensor) for tensor in graph.inputs},
                    optimized=True,
                )


_folders: list[tempfile.TemporaryDirectory[str]] = []


def _fed(tensor: Tensor) -> Fed:
    shape = _sizes(tensor)
    whole = None if tensor.dtype.is_float else np.ones(shape, tensor.dtype.name)
    return Fed(shape=shape, dtype=tensor.dtype.name, values=whole)


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    return tuple(int(size or 0) for size in tensor.shape or ())


def measured(graph: Graph, weights: RandomWeights, provider: Any) -> dict[str, Any]:
    """A case's figures; its weights serve the next batch."""
    from analyzer.measurement.child_process import measure
    from analyzer.measurement.request import MeasureRequest
    from analyzer.measurement.tensor_files import save_tensors

    draw = np.random.default_rng(0)

    def values(tensor: Tensor) -> Any:
        sizes = _sizes(tensor)
        drawn = draw.standard_normal(sizes) if tensor.dtype.is_float else draw.integers(0, 2, sizes)
        return drawn.astype(tensor.dtype.name)

    feeds = {tensor.name: values(tensor) for tensor in graph.inputs}
    path = weights.write(graph, "model.onnx")
    fed = weights.folder / "feeds.npz"
    save_tensors(fed, feeds)
    request = MeasureRequest(
        model_path=path, feeds=fed, provider=provider, time_budget_s=_BUDGET_S, timeout_s=60.0
    )
    return kept(summary(measure(request)))


# Of each operator; what a comparison of times has no use for would be most of the record.
_KEPT = ("name", "op_type", "provider", "kernels", "device_s", "gap_s")


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What the record keeps of a measurement."""
    nodes = [{name: node[name] for name in _KEPT} for node in row["nodes"]]
    return {name: row[name] for name in ("ways", "load_s", "device_peak_bytes", "messages")} | {"nodes": nodes}


if __name__ == "__main__":
    sys.exit(main())
