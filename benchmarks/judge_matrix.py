"""Placement and groups of every sample against the real CUDA provider; prints a table and every difference.

    python benchmarks/judge_matrix.py [--samples NAME,...] [--opsets N,...] [--types fp32,fp16]

Each sample is exported at each opset and type and judged with a static and a symbolic batch. Weights are
zeros in a file without content. Ends with status 1 if a node or a copy is placed otherwise than we say.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "judge"))

import agreement
import court
import onnx
import standins
from symbolic_sizes import opened

from analyzer.errors import AnalyzerError
from analyzer.graph import Graph
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.fusion import groups_from_optimized, predicted_groups
from analyzer.ort.simplify import simplify

ROOT = Path(__file__).resolve().parents[1]
LARGEST_BYTES = 1_500_000_000  # of weights: ONNX Runtime holds them twice
STATIC, SMALL, LARGE = 3, 5, 7  # batches: the static one, and the two that tell which sizes are symbolic
# Too large as they are: two narrow layers have every operator of many wide ones.
SHRUNK = {"llama_7b": {"LAYERS": 2, "WIDTH": 256, "HEADS": 4, "HIDDEN": 512, "VOCABULARY": 1000, "TOKENS": 64}}
SKIPPED = ("gpt3_175b",)  # the graph of gpt2, eight times over
VARIANT = """
import sys
sys.path.insert(0, {folder!r})
import torch
import {name} as sample
from torch.utils._pytree import tree_map

for constant, value in {constants!r}.items():
    setattr(sample, constant, value)


def cast(x):
    return x.half() if {half} and x.is_floating_point() else x


if hasattr(sample, "build_model"):

    def build_model():
        return sample.build_model().half() if {half} else sample.build_model()
else:
    {name} = sample.{name}


def example_inputs(batch={batch}):
    return tree_map(cast, sample.example_inputs(batch))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One sample at one opset, type and kind of batch."""

    title: str
    found: agreement.Agreement
    coverage: float
    predicted: float
    seconds: float


def main() -> int:
    """Judges what the options select."""
    arguments = _arguments()
    reason = standins.missing()
    if reason:
        print(f"Nothing judged: {reason}.")
        return 0
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    total = agreement.Agreement()
    covered: list[float] = []
    predicted: list[float] = []
    with tempfile.TemporaryDirectory() as folder, court.Judge(standins.build(Path(folder))) as judge:
        for row in _rows(judge, Path(folder), arguments):
            print(
                f"{row.title:44} {row.found.nodes:5} nodes {row.found.share:8.2%} {row.found.copies:4} copies "
                f"{len(row.found.differences):3} differences, groups {row.coverage:7.2%} covered "
                f"{row.predicted:7.2%} predicted, {row.seconds:.1f} s",
                flush=True,
            )
            for difference in row.found.differences:
                print(f"    {difference}")
            total += row.found
            covered.append(row.coverage)
            predicted.append(row.predicted)
    print(
        f"{len(covered)} models, {total.nodes} nodes: {total.share:.3%} agree; {total.copies} copies; "
        f"{len(total.differences)} differences; operators covered by groups at least {min(covered):.2%}; "
        f"groups predicted {sum(predicted) / len(predicted):.2%} on average, at least {min(predicted):.2%}"
    )
    return 1 if total.differences else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--samples", default=",".join(sorted(path.stem for path in (ROOT / "samples").glob("*.py")))
    )
    parser.add_argument("--opsets", default="18,20,21,23")
    parser.add_argument("--types", default="fp32,fp16")
    return parser.parse_args()


def _rows(judge: court.Judge, folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    for name in arguments.samples.split(","):
        if not _has_model(name):
            continue
        for opset in map(int, arguments.opsets.split(",")):
            for kind in arguments.types.split(","):
                title = f"{name} {opset} {kind}"
                try:
                    loaded = _load(name, opset, kind, folder)
                except AnalyzerError as error:
                    print(f"{title}: not exported ({error.message})")
                    continue
                if loaded is None:
                    continue
                for symbolic in (False, True) if loaded.symbol else (False,):
                    yield _judged(
                        judge, folder, loaded, symbolic, f"{title} {'symbolic' if symbolic else 'static'}"
                    )


def _has_model(name: str) -> bool:
    return name not in SKIPPED and "def example_inputs" in (ROOT / "samples" / f"{name}.py").read_text()


def _load(name: str, opset: int, kind: str, folder: Path) -> Loaded | None:
    """The sample's export, None where it is too large."""
    path = ROOT / "samples" / f"{name}.py"
    function = "" if "def build_model" in path.read_text() else f":{name}"
    if kind == "fp16" or name in SHRUNK:
        path = folder / f"{kind}_{name}.py"
        path.write_text(
            VARIANT.format(
                folder=str(ROOT / "samples"),
                name=name,
                batch=STATIC,
                half=kind == "fp16",
                constants=SHRUNK.get(name, {}),
            )
        )
    reference = f"{path}{function}"
    loaded = load(parse_reference(reference), opset=opset, use_cache=False)
    size = sum(tensor.nbytes or 0 for tensor in loaded.graph().initializers)
    if size > LARGEST_BYTES:
        print(f"{name} {opset} {kind}: {size / 1e9:.1f} GB of weights do not fit")
        return None
    return loaded


def _judged(judge: court.Judge, folder: Path, loaded: Loaded, symbolic: bool, title: str) -> Row:
    start = time.perf_counter()
    model = onnx.ModelProto()
    model.CopyFrom(loaded.proto)
    if symbolic:
        graph = opened(*(to_graph(model, bindings=loaded.bound_to(size)) for size in (SMALL, LARGE)))
    else:
        _bind(model, loaded)
        graph = to_graph(model)
    path = _with_weights(model, folder)
    optimized = folder / "kept.onnx"
    ruling = judge.rule(path, keep=optimized)
    found = agreement.compare(graph, ruling)
    coverage, predicted = (1.0, 1.0) if ruling.error else _groups(graph, optimized)
    return Row(
        title=title, found=found, coverage=coverage, predicted=predicted, seconds=time.perf_counter() - start
    )


def _groups(graph: Graph, path: Path) -> tuple[float, float]:
    """Share of the operators that groups cover, and share of the groups that the rules foretell."""
    real = groups_from_optimized(graph, onnx.load(path, load_external_data=False), "cuda")
    executed = len(graph.nodes) - len(simplify(graph).folded)
    members = {group.members for group in real}
    foretold = {group.members for group in predicted_groups(graph, "cuda")}
    covered = sum(map(len, members))
    return min(1.0, covered / max(1, executed)), len(members & foretold) / max(1, len(members))


def _bind(model: onnx.ModelProto, loaded: Loaded) -> None:
    sizes = loaded.bound_to(loaded.static_batch or STATIC)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def _with_weights(model: onnx.ModelProto, folder: Path) -> Path:
    """Writes the model with zeros for weights; all lie in one file that takes no space."""
    largest = 0
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            size = width * int(_product(tensor.dims))
            largest = max(largest, size)
            del tensor.external_data[:]
            for key, value in (("location", "zeros.bin"), ("offset", "0"), ("length", str(size))):
                tensor.external_data.add(key=key, value=value)
    with (folder / "zeros.bin").open("wb") as file:
        file.truncate(largest)
    path = folder / "sample.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _product(sizes: Any) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


if __name__ == "__main__":
    sys.exit(main())
