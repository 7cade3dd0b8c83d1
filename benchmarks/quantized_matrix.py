"""Groups and placement of quantised models against ONNX Runtime's own, CPU and CUDA; prints a table.

    python benchmarks/quantized_matrix.py [--models residual,...] [--opsets 13,17,21,23] [--verbose]

Six small networks (``tests/judge/small_models.py``) go through ``onnxruntime.quantization``: static in QDQ and
QOperator form (uint8, int8, uint16 data, weights by tensor and by channel), dynamic, and weights of 4 and 8
bits in blocks. What the CPU session executes is read off its own optimised graph, what the CUDA session does
off the real provider's (``tests/judge``). ``groups`` are equal in their operators; ``named`` in the kernel's
type and device, too. Ends with status 1 below 99 %.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "judge"))

import agreement
import court
import numpy as np
import onnx
import onnxruntime
import small_models
import standins
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

from analyzer.errors import AnalyzerError
from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Group, Session
from analyzer.ort.fusion import groups_from_optimized, predicted_groups

WANTED = 0.99
STATIC: dict[str, dict[str, Any]] = {
    "u8s8": {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8},
    "u8s8 by channel": {
        "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True,
    },
    "s8s8": {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8},
    "s8s8 symmetric": {
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
        "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True},
    },
    "u8u8": {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QUInt8},
    "u8u8 of 7 bits": {
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QUInt8,
        "reduce_range": True,
        "per_channel": True,
    },
    "u16s8": {"activation_type": QuantType.QUInt16, "weight_type": QuantType.QInt8},
}  # fmt: skip
# A kernel in blocks bears the name of the operator that it stands for; an unnamed part of a definition its own.
_ONE_NAME = {"FusedConv": "Conv", "NhwcMaxPool": "MaxPool", "Upsample": "Resize", "HardSigmoid": "HardSwish"}


@dataclass
class Tally:
    """What was compared in one session."""

    models: int = 0
    groups: int = 0
    equal: int = 0
    named: int = 0
    nodes: int = 0
    misplaced: int = 0
    copies: int = 0
    copies_wrong: int = 0
    missed: Counter[str] = field(default_factory=Counter)


def main() -> int:
    """Compares what the options select."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(small_models.MODELS))
    parser.add_argument("--opsets", default="13,17,21,23")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    tallies: dict[Session, Tally] = {"cpu": Tally(), "cuda": Tally()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judge = None if standins.missing() else court.Judge(standins.build(folder))
        for source in arguments.models.split(","):
            for opset in map(int, arguments.opsets.split(",")):
                for title, path in _quantised(source, opset, folder):
                    _compare(title, path, judge, folder, tallies, arguments.verbose)
        if judge is not None:
            judge.close()
    print("| session | models | groups | equal | named alike | nodes placed | wrong | copies | wrong |")
    print("|---|---|---|---|---|---|---|---|---|")
    for session, tally in tallies.items():
        share, named = (part / max(1, tally.groups) for part in (tally.equal, tally.named))
        print(
            f"| {session} | {tally.models} | {tally.groups} | {share:.2%} | {named:.2%} | {tally.nodes} | "
            f"{tally.misplaced} | {tally.copies} | {tally.copies_wrong} |"
        )
        for kind, count in tally.missed.most_common(20 if arguments.verbose else 0):
            print(f"    {count:5} {kind}")
    return int(any(tally.equal < WANTED * tally.groups for tally in tallies.values()))


def _quantised(source: str, opset: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """Every form of one network that the quantiser makes; what it refuses is left out."""
    import torch

    torch.manual_seed(0)
    path = folder / "floats.onnx"
    onnx.save(small_models.export(small_models.MODELS[source](), opset), path)
    target = folder / "quantised.onnx"
    forms: dict[str, Callable[[], None]] = {}
    for name, options in STATIC.items():
        for form in (QuantFormat.QDQ, QuantFormat.QOperator):
            forms[f"{name} {form.name}"] = partial(quantize_statically, path, target, form, options)
    for name, kind in (("s8", QuantType.QInt8), ("u8", QuantType.QUInt8)):
        forms[f"dynamic {name}"] = partial(
            quantization.quantize_dynamic,
            str(path),
            str(target),
            weight_type=kind,
            per_channel=kind == QuantType.QUInt8,
        )
    for bits in (4, 8):
        for form in (QuantFormat.QDQ, QuantFormat.QOperator):
            for symmetric in (True, False):
                title = f"{bits} bits {form.name}{'' if symmetric else ' with zero points'}"
                forms[title] = partial(quantize_in_blocks, path, target, bits, form, symmetric=symmetric)
    for name, make in forms.items():
        target.unlink(missing_ok=True)
        try:
            make()
        except Exception as error:  # whatever the quantiser raises: that form does not exist
            print(f"{source} {opset} {name}: not made ({type(error).__name__})", file=sys.stderr)
            continue
        yield f"{source} {opset} {name}", target


def quantize_statically(path: Path, target: Path, form: QuantFormat, options: Mapping[str, Any]) -> None:
    """Data and weights as integers; ``options`` is an entry of ``STATIC``."""
    quantization.quantize_static(str(path), str(target), Feeds(path), quant_format=form, **options)


def quantize_in_blocks(
    path: Path, target: Path, bits: int, form: QuantFormat, *, symmetric: bool = True, block: int = 16
) -> None:
    """Weights of products alone, in blocks that share a scale."""
    config = DefaultWeightOnlyQuantConfig(
        block_size=block, is_symmetric=symmetric, quant_format=form, bits=bits, op_types_to_quantize=("MatMul",)
    )
    quantizer = MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]  # it ships no types
    """Two batches of random numbers."""

    def __init__(self, path: Path) -> None:
        self.rows = iter([self._feed(onnx.load(path), seed) for seed in range(2)])

    @staticmethod
    def _feed(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
        random = np.random.default_rng(seed)
        feed = {}
        for value in model.graph.input:
            shape = [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
            integers = value.type.tensor_type.elem_type == onnx.TensorProto.INT64
            feed[value.name] = (
                random.integers(0, 10, shape) if integers else random.standard_normal(shape).astype(np.float32)
            )
        return feed

    def get_next(self) -> dict[str, Any] | None:
        """The next batch."""
        return next(self.rows, None)


def _compare(
    title: str,
    path: Path,
    judge: court.Judge | None,
    folder: Path,
    tallies: dict[Session, Tally],
    verbose: bool,
) -> None:
    model = small_models.named(onnx.load(path))
    try:
        graph = to_graph(model)
    except AnalyzerError as error:
        print(f"{title}: {error.message}", file=sys.stderr)
        return
    kept = folder / "optimized.onnx"
    for session, tally in tallies.items():
        if session == "cuda" and judge is None:
            continue
        if session == "cpu":
            refusal = _optimised(model, kept)
        else:
            ruling = judge.rule(model, keep=kept)
            refusal = ruling.error
        if refusal:
            print(f"{title}, {session}: no session ({refusal[:120]})", file=sys.stderr)
            continue
        if session == "cuda":
            found = agreement.compare(graph, ruling)
            tally.nodes += found.nodes
            tally.misplaced += found.wrong_nodes
            tally.copies += found.copies
            tally.copies_wrong += len(found.differences) - found.wrong_nodes
        optimized = onnx.load(kept, load_external_data=False)
        _count(graph, groups_from_optimized(graph, optimized, session), session, tally)
        if verbose:
            print(title, session, f"{tally.equal}/{tally.groups}", flush=True)


def _optimised(model: onnx.ModelProto, kept: Path) -> str:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(kept)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has types of its own for each way to fail
        return str(error)
    return ""


def _count(graph: Graph, groups: tuple[Group, ...], session: Session, tally: Tally) -> None:
    real = {group.members: _kind(group) for group in groups if group.members}
    mine = {group.members: _kind(group) for group in predicted_groups(graph, session)}
    tally.models += 1
    tally.groups += len(real)
    tally.equal += len(real.keys() & mine.keys())
    tally.named += sum(mine.get(members) == kind for members, kind in real.items())
    for members in real.keys() ^ mine.keys():
        whose = "executed" if members in real else "foretold"
        tally.missed[f"{whose} {'+'.join(graph.nodes[index].op_type for index in members)}"] += 1


def _kind(group: Group) -> tuple[str, str]:
    return _ONE_NAME.get(group.op_type, group.op_type), group.provider


if __name__ == "__main__":
    sys.exit(main())
