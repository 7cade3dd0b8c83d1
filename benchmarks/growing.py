"""How the time of a whole check grows with the graph.

    python benchmarks/growing.py [--operators 1000 10000 100000] [--gpu none]

Prints for each number of operators the processor's seconds of an analysis as ``analyze check`` makes it, what
that is for one operator, the ratio to the row before (1.00 is linear) and the most memory held. Two graphs:
a chain of four operators again and again, and blocks of attention, GELU and convolutions. Each analysis runs in
a process of its own, with no cache. Batches: all up to 1,000 operators, fewer from there, fewest over 20,000.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_MEASURED = """
import resource, sys, time
from analyzer.api import analyze
analyze(sys.argv[1], check=True, run=False, gpu=sys.argv[2] or None, cache=False)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)
"""
WIDTH, HEADS = 64, 4


class Builder:
    """A graph while it grows."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def weight(self, name: str, *shape: int) -> str:
        """A weight, made when it is first asked for."""
        self.constants.setdefault(name, numpy_helper.from_array(np.ones(shape, np.float32), name))
        return name

    def sizes(self, *values: int) -> str:
        """A constant of sizes."""
        name = "_".join(map(str, ("sizes", *values)))
        self.constants.setdefault(name, numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """An operator; the name of its first output, the others' end in 1, 2."""
        name = f"{op_type}_{len(self.nodes)}"
        results = [f"{name}_{position}" for position in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), results, name=name, **attributes))
        return results[0]

    def model(self, result: str) -> onnx.ModelProto:
        """The model whose result this is."""
        graph = helper.make_graph(
            self.nodes,
            "grown",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH, WIDTH])],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
            list(self.constants.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def chain(operators: int) -> onnx.ModelProto:
    """Relu, Sigmoid, a product and its bias in turn."""
    grown, name = Builder(), "x"
    while len(grown.nodes) < operators:
        name = grown.add("Sigmoid", grown.add("Relu", name))
        name = grown.add("MatMul", name, grown.weight("w", WIDTH, WIDTH))
        name = grown.add("Add", name, grown.weight("b", WIDTH))
    return grown.model(name)


def blocks(operators: int) -> onnx.ModelProto:
    """Attention with a GELU, and convolutions, of seven sizes in turn."""
    grown, name, layer = Builder(), "x", 0
    while len(grown.nodes) < operators:
        name = (_convolutions if layer % 2 else _attention)(grown, name, 1 + layer % 7)
        layer += 1
    return grown.model(name)


def _attention(grown: Builder, x: str, size: int) -> str:
    def heads(name: str, *order: int) -> str:
        return grown.add(
            "Transpose", grown.add("Reshape", name, grown.sizes(0, 0, HEADS, WIDTH // HEADS)), perm=order
        )

    bias, hidden = grown.weight("b", WIDTH), WIDTH * size
    query = grown.add("Add", grown.add("MatMul", x, grown.weight("q", WIDTH, WIDTH)), bias)
    scores = grown.add("MatMul", heads(query, 0, 2, 1, 3), heads(x, 0, 2, 3, 1))
    scores = grown.add("Softmax", grown.add("Mul", scores, grown.weight("scale", 1)), axis=-1)
    mixed = grown.add("Transpose", grown.add("MatMul", scores, heads(x, 0, 2, 1, 3)), perm=(0, 2, 1, 3))
    x = grown.add("Add", grown.add("Reshape", mixed, grown.sizes(0, 0, WIDTH)), x)
    wide = grown.add("LayerNormalization", x, bias, bias)
    wide = grown.add("MatMul", wide, grown.weight(f"up{size}", WIDTH, hidden))
    wide = grown.add("Add", wide, grown.weight(f"b{size}", hidden))
    erf = grown.add("Erf", grown.add("Div", wide, grown.weight("root", 1)))
    wide = grown.add("Mul", wide, grown.add("Add", erf, grown.weight("one", 1)))
    narrow = grown.add(
        "MatMul", grown.add("Mul", wide, grown.weight("half", 1)), grown.weight(f"down{size}", hidden, WIDTH)
    )
    return grown.add("Add", grown.add("Add", narrow, bias), x)


def _convolutions(grown: Builder, x: str, size: int) -> str:
    channels = 16 * size
    image = grown.add("Reshape", x, grown.sizes(0, WIDTH, 8, 8))
    wide = grown.add("Conv", image, grown.weight(f"k{size}", channels, WIDTH, 3, 3), pads=(1, 1, 1, 1))
    wide = grown.add("BatchNormalization", wide, *[grown.weight(f"{part}{size}", channels) for part in "smvo"])
    narrow = grown.add("Conv", grown.add("Relu", wide), grown.weight(f"p{size}", WIDTH, channels, 1, 1))
    half = grown.add("Split", grown.add("Add", narrow, image), outputs=2, axis=1, num_outputs=2)
    whole = grown.add("Concat", grown.add("Sigmoid", half), half.removesuffix("0") + "1", axis=1)
    return grown.add("Reshape", whole, grown.sizes(0, WIDTH, WIDTH))


def measured(model: onnx.ModelProto, gpu: str) -> tuple[float, int]:
    """The processor's seconds of a check in a new process, and the most MB that it held."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grown.onnx"
        path.write_bytes(model.SerializeToString())
        command = [sys.executable, "-c", _MEASURED, str(path), gpu]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(told[0]), int(told[1])


def rows(name: str, sizes: list[int], gpu: str) -> Iterator[str]:
    """The table of one graph."""
    before = 0.0
    yield f"{name:<8} {'operators':>10} {'CPU s':>8} {'us/op':>8} {'ratio':>6} {'MB':>6}"
    for size in sizes:
        model = {"chain": chain, "blocks": blocks}[name](size)
        seconds, megabytes = measured(model, gpu)
        each = seconds / len(model.graph.node) * 1e6
        ratio = f"{each / before:>6.2f}" if before else f"{'':>6}"
        before = each
        yield f"{'':<8} {len(model.graph.node):>10,} {seconds:>8.1f} {each:>8.0f} {ratio} {megabytes:>6}"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="How the time of a whole check grows with the graph.")
    parser.add_argument("--operators", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--gpu", default="")
    asked = parser.parse_args()
    for name in ("chain", "blocks"):
        for row in rows(name, asked.operators, asked.gpu):
            print(row, flush=True)


if __name__ == "__main__":
    main()
