"""How fast the count is, and how right: against onnx-tool 1.0.1 on the same files, and by size of the graph.

    pip install onnx-tool==1.0.1        # needed by this script alone
    python benchmarks/counting.py

Prints four tables. The first is the time by size of the graph; in the others both tools start and end alike:

- "from the model": from one ModelProto in memory, as ``onnx.load`` gives it, to a cost for every operator.
  Ours is ``to_graph`` (copy, normalisation, shape inference, folding) and ``count``; theirs is
  ``Model(proto)`` (their graph; it folds constants there), ``shape_infer`` and ``profile``.
- "shapes and costs alone": from the nodes as read to costs. Ours is ``shaped`` (shapes, folding, the Graph's
  tensors and operators) and ``count``, without the copy, the names, the order and the origins before; theirs
  ``shape_infer`` and ``profile``, without ``Model(proto)``, which has folded the constants.
- "from the file": as the first with reading in front, ours by ``read_model``, which skips the weights' bytes,
  theirs by ``onnx.load``, which is what ``Model(path)`` does.

Each time is the median of many runs in this one process, file cache warm, in blocks of seven in which the tools
take turns. What the machine does beside makes times of two runs of this script differ; ratios hold.
"""

from __future__ import annotations

import gc
import io
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from analyzer.costs import count
from analyzer.loading.onnx_graph.build import shaped, to_graph
from analyzer.loading.onnx_graph.normalize import normalized
from analyzer.loading.onnx_graph.onnx_file import read_model

# GFLOP of all products, 2 for a multiply-accumulate, worked out apart from either tool.
LIGHT = {
    "bvlc_alexnet": 1.309,
    "densenet121": 5.668,
    "inception_v1": 2.863,
    "inception_v2": 4.038,
    "resnet50": 8.178,
    "shufflenet": 0.249,
    "squeezenet": 0.698,
    "vgg19": 39.264,
    "zfnet512": 2.963,
}
ROUNDS, BLOCK = 5, 7
LAYERS, WIDTH, HEADS, TOKENS = 12, 192, 3, 128


def best(action: Callable[[], Any], runs: int = 7) -> tuple[float, Any]:
    """The shortest of several runs in seconds, and what the action gave."""
    shortest, result = float("inf"), None
    gc.collect()
    for _ in range(runs):
        start = time.perf_counter()
        result = action()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest, result


def chain(operators: int) -> onnx.ModelProto:
    """A graph of that many operators: products, biases, activations and norms in turn."""
    nodes, name = [], "x"
    for index in range(operators):
        op_type, *constants = (("MatMul", "w"), ("Add", "b"), ("Relu",), ("LayerNormalization", "b"))[index % 4]
        nodes.append(helper.make_node(op_type, [name, *constants], [f"t{index}"]))
        name = f"t{index}"
    weights = [
        TensorProto(name=name, dims=dims, data_type=1, data_location=TensorProto.EXTERNAL)
        for name, dims in (("w", [64, 64]), ("b", [64]))
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])]
    graph = helper.make_graph(nodes, "chain", inputs, [helper.make_tensor_value_info(name, 1, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def by_size() -> Iterator[str]:
    """Time an operator at three sizes: it stays the same where the count is linear."""
    yield f"{'operators':>10} {'count us/op':>12} {'count op/s':>12} {'load us/op':>12}"
    for operators in (1_000, 10_000, 100_000):
        model = chain(operators)
        load_s, graph = best(partial(to_graph, model), 3)
        count_s, table = best(partial(count, graph), 3)
        assert table.total.basis == "exact"
        yield (
            f"{operators:>10,} {count_s / operators * 1e6:>12.2f} {operators / count_s:>12,.0f}"
            f" {load_s / operators * 1e6:>12.2f}"
        )


def transformers(folder: Path) -> Iterator[tuple[str, Path, float]]:
    """Three transformers of twelve narrow layers as PyTorch exports them, with PyTorch's own count of FLOPs."""
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    class Block(nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.causal = causal
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            scores = parts[0] @ parts[1].transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
            if self.causal:
                scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), float("-inf"))
            mixed = (scores.softmax(-1) @ parts[2]).transpose(1, 2).reshape(batch, tokens, WIDTH)
            x = x + self.out(mixed)
            return x + self.mlp(self.norm2(x))

    class Text(nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.words, self.positions = nn.Embedding(1000, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.blocks = nn.ModuleList(Block(causal) for _ in range(LAYERS))
            self.head = nn.Linear(WIDTH, 1000)

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    class Vision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, WIDTH, 16, 16)
            self.blocks = nn.ModuleList(Block(False) for _ in range(LAYERS))
            self.head = nn.Linear(WIDTH, 1000)

        def forward(self, image: Any) -> Any:
            x = self.patches(image).flatten(2).transpose(1, 2)
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(1))

    ids, image = torch.zeros(1, TOKENS, dtype=torch.int64), torch.zeros(1, 3, 224, 224)
    for name, model, inputs in (
        ("text encoder", Text(False), ids),
        ("text decoder", Text(True), ids),
        ("vision transformer", Vision(), image),
    ):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.eval()(inputs)
        stream = io.BytesIO()
        torch.onnx.export(model, (inputs,), dynamo=True, opset_version=18, verbose=False).save(
            stream  # type: ignore[arg-type]  # it takes a stream too
        )
        path = folder / f"{name.replace(' ', '_')}.onnx"
        path.write_bytes(stream.getvalue())
        yield name, path, counter.get_total_flops() / 1e9


def files(folder: Path) -> Iterator[tuple[str, Path, float]]:
    """Name, file and the right GFLOP of each model; PyTorch exports in a process of its own."""
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    for name, gflop in LIGHT.items():
        yield name, light / f"light_{name}.onnx", gflop
    command = [sys.executable, __file__, "--export", str(folder)]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        name, path, right = line.split("\t")
        yield name, Path(path), float(right)


def theirs(model: onnx.ModelProto) -> tuple[float, float]:
    """onnx-tool's GMACs of a model, and seconds of its shape inference and profile alone."""
    import onnx_tool

    found = onnx_tool.Model(model, {"verbose": False})
    start = time.perf_counter()
    found.graph.shape_infer(None)
    found.graph.profile()
    return found.graph.macs[0] / 1e9, time.perf_counter() - start


def alone(model: onnx.ModelProto) -> float:
    """Seconds of our shapes and costs of a model whose nodes have been read."""
    ready = normalized(model)
    start = time.perf_counter()
    count(shaped(ready))
    return time.perf_counter() - start


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model's times in seconds and GMACs by both tools.

    Attributes:
        name, nodes, right: The model, its operators and its GMACs.
        read, whole, alone: Of reading a file, from a model to costs, and of shapes and costs alone; ours first.
        macs: Both tools' GMACs.
        failure: Why onnx-tool has none.
    """

    name: str
    nodes: int
    right: float
    read: tuple[float, float] = (0.0, 0.0)
    whole: tuple[float, float] = (0.0, 0.0)
    alone: tuple[float, float] = (0.0, 0.0)
    macs: tuple[float, float]
    failure: str = ""


def compared(name: str, path: Path, gflop: float) -> Row:
    """One model by both tools, in turns."""
    model = onnx.load(path)
    known: dict[str, Any] = {"name": name, "nodes": len(model.graph.node), "right": gflop / 2}
    ours = count(to_graph(model)).total.macs / 1e9
    try:
        macs = (ours, theirs(model)[0])
    except Exception as error:  # it fails on some models: that is a result too
        return Row(**known, macs=(ours, 0.0), failure=f"{type(error).__name__}: {error}")
    times = in_turns(
        lambda: read_model(path),
        lambda: count(to_graph(model)),
        lambda: onnx.load(path),
        lambda: theirs(model),
        results=(lambda: alone(model), lambda: theirs(model)[1]),
    )
    return Row(
        **known, macs=macs, read=(times[0], times[2]), whole=(times[1], times[3]), alone=(times[4], times[5])
    )


def in_turns(*actions: Callable[[], Any], results: Sequence[Callable[[], float]]) -> list[float]:
    """Median seconds of each action, and of what the ``results``, which time a part of theirs, tell."""
    found: list[list[float]] = [[] for _ in (*actions, *results)]
    for _ in range(ROUNDS):
        for position, action in enumerate((*actions, *results)):
            gc.collect()
            for _ in range(BLOCK):
                start = time.perf_counter()
                told = action()
                taken = time.perf_counter() - start
                found[position].append(taken if position < len(actions) else told)
    return [statistics.median(times) for times in found]


def from_the_model(rows: list[Row]) -> Iterator[str]:
    """Times in milliseconds from a ModelProto to costs, and multiply-accumulates of both tools."""
    yield (
        f"{'from the model':<24} {'nodes':>6} | {'ours ms':>8} {'theirs':>8} {'ratio':>6}"
        f" | {'right GMAC':>10} {'ours':>9} {'onnx-tool':>9}"
    )
    for row in rows:
        macs = f"{row.right:>10.4f} {row.macs[0]:>9.4f}"
        if row.failure:
            yield f"{row.name:<24} {row.nodes:>6} | onnx-tool fails: {row.failure} | {macs}"
        else:
            yield f"{row.name:<24} {row.nodes:>6} | {pair(row.whole)} | {macs} {row.macs[1]:>9.4f}"
    yield summed([row.whole for row in rows if not row.failure])


def shapes_and_costs(rows: list[Row]) -> Iterator[str]:
    """Times in milliseconds from the nodes as read to costs."""
    yield f"{'shapes and costs alone':<24} | {'ours ms':>8} {'theirs':>8} {'ratio':>6}"
    for row in rows:
        if not row.failure:
            yield f"{row.name:<24} | {pair(row.alone)}"
    yield summed([row.alone for row in rows if not row.failure])


def from_the_file(rows: list[Row]) -> Iterator[str]:
    """Times in milliseconds from a file to costs."""
    yield f"{'from the file':<24} | {'ours ms':>8} {'theirs':>8} {'ratio':>6}"
    sums = [
        (row.name, (row.read[0] + row.whole[0], row.read[1] + row.whole[1])) for row in rows if not row.failure
    ]
    for name, both in sums:
        yield f"{name:<24} | {pair(both)}"
    yield summed([both for _, both in sums])


def pair(times: tuple[float, float]) -> str:
    """Our time, theirs and the ratio."""
    return f"{times[0] * 1e3:>8.2f} {times[1] * 1e3:>8.2f} {times[1] / times[0]:>5.1f}x"


def summed(pairs: list[tuple[float, float]]) -> str:
    """All files together, and the least ratio."""
    ours, other = (sum(side) * 1e3 for side in zip(*pairs, strict=True))
    least = min(second / first for first, second in pairs)
    return (
        f"all: ours {ours:.1f} ms, onnx-tool {other:.1f} ms, {other / ours:.1f} times as long;"
        f" the least ratio of a file is {least:.1f}"
    )


def main() -> None:
    """Prints the tables."""
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--export"]:
        for name, path, gflop in transformers(Path(sys.argv[2])):
            print(name, path, gflop, sep="\t")
        return
    print("\n".join(by_size()))
    print()
    with tempfile.TemporaryDirectory() as folder:
        rows = [compared(*file) for file in files(Path(folder))]
    print("\n".join((*from_the_model(rows), "", *shapes_and_costs(rows), "", *from_the_file(rows))))


if __name__ == "__main__":
    main()
