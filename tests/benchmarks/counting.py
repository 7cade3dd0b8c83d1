"""How fast the count is, and how right: against onnx-tool 1.0.1 on the same files, and by size of the graph.

    pip install onnx-tool==1.0.1        # needed by this script alone
    python tests/benchmarks/counting.py

Prints three tables. Both tools start and end at the same points:

- "from the model": from one ModelProto in memory, as ``onnx.load`` gives it, to a cost for every operator.
  Ours is ``to_graph`` (copy, normalisation, shape inference, folding) and ``count``; theirs is
  ``Model(proto)`` (their graph; it folds constants there), ``shape_infer`` and ``profile``.
- "from the file": the same with reading in front, ours by ``read_model``, which skips the weights' bytes,
  theirs by ``onnx.load``, which is what ``Model(path)`` does.

``shape_infer`` and ``profile`` alone do not take a model to its costs: their time stands in a column of its
own, and no ratio is made of it. Each time is the best of many runs in this one process, file cache warm, in
blocks of five in which the tools take turns.
"""

from __future__ import annotations

import gc
import io
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from analyzer.costs import count
from analyzer.loading.build import to_graph
from analyzer.loading.onnx_file import read_model

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
ROUNDS, BLOCK = 6, 5
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
        op_type, *weights = (("MatMul", "w"), ("Add", "b"), ("Relu",), ("LayerNormalization", "b"))[index % 4]
        nodes.append(helper.make_node(op_type, [name, *weights], [f"t{index}"]))
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
        load_s, graph = best(lambda model=model: to_graph(model), 3)
        count_s, table = best(lambda graph=graph: count(graph), 3)
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
        torch.onnx.export(model, (inputs,), dynamo=True, opset_version=18, verbose=False).save(stream)
        path = folder / f"{name.replace(' ', '_')}.onnx"
        path.write_bytes(stream.getvalue())
        yield name, path, counter.get_total_flops() / 1e9


def files(folder: Path) -> Iterator[tuple[str, Path, float]]:
    """Name, file and the right GFLOP of each model."""
    light = Path(onnx.__file__).parent / "backend/test/data/light"
    for name, gflop in LIGHT.items():
        yield name, light / f"light_{name}.onnx", gflop
    yield from transformers(folder)


def theirs(model: onnx.ModelProto) -> tuple[float, float]:
    """onnx-tool's GMACs of a model, and seconds of its shape inference and profile alone."""
    import onnx_tool

    found = onnx_tool.Model(model, {"verbose": False})
    start = time.perf_counter()
    found.graph.shape_infer(None)
    found.graph.profile()
    return found.graph.macs[0] / 1e9, time.perf_counter() - start


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model's times in seconds and GMACs by both tools; theirs are None where onnx-tool fails."""

    name: str
    nodes: int
    right: float
    ours: tuple[float, float, float]
    our_macs: float
    theirs: tuple[float, float, float] | None
    their_macs: float | None = None
    failure: str = ""


def compared(name: str, path: Path, gflop: float) -> Row:
    """One model by both tools, in turns."""
    model = onnx.load(path)
    graph = to_graph(model)
    actions: list[Callable[[], Any]] = [
        lambda: read_model(path),
        lambda: to_graph(model),
        lambda: count(graph),
        lambda: onnx.load(path),
        lambda: theirs(model),
    ]
    failure, macs = "", None
    try:
        macs, _ = theirs(model)
    except Exception as error:  # it fails on some models: that is a result too
        failure = f"{type(error).__name__}: {error}"
        actions = actions[:3]
    times, alone = [float("inf")] * len(actions), float("inf")
    for _ in range(ROUNDS):
        for position, action in enumerate(actions):
            seconds, result = best(action, BLOCK)
            times[position] = min(times[position], seconds)
        alone = min(alone, alone if failure else result[1])
    return Row(
        name=name,
        nodes=len(model.graph.node),
        right=gflop / 2,
        ours=(times[0], times[1], times[2]),
        our_macs=count(graph).total.macs / 1e9,
        theirs=None if failure else (times[3], times[4], alone),
        their_macs=macs,
        failure=failure,
    )


def from_the_model(rows: list[Row]) -> Iterator[str]:
    """Times in milliseconds from a ModelProto to costs, and multiply-accumulates of both tools."""
    yield (
        f"{'from the model':<20} {'nodes':>6} | {'graph':>7} {'count':>7} {'sum ms':>7} | {'theirs':>7}"
        f" {'(infer+profile)':>15} | {'ratio':>6} | {'right GMAC':>10} {'ours':>9} {'onnx-tool':>9}"
    )
    for row in rows:
        _, graph_s, count_s = row.ours
        ours = graph_s + count_s
        head = f"{row.name:<20} {row.nodes:>6} | {milliseconds(graph_s, count_s, ours)}"
        macs = f"{row.right:>10.4f} {row.our_macs:>9.4f}"
        if row.theirs is None:
            yield f"{head} | onnx-tool fails: {row.failure} | {macs}"
            continue
        _, other, alone = row.theirs
        yield (
            f"{head} | {milliseconds(other)} {alone * 1e3:>15.2f} | {other / ours:>5.1f}x"
            f" | {macs} {row.their_macs:>9.4f}"
        )
    yield summed([(sum(row.ours[1:]), row.theirs[1]) for row in rows if row.theirs])


def from_the_file(rows: list[Row]) -> Iterator[str]:
    """Times in milliseconds from a file to costs."""
    yield f"{'from the file':<20} | {'read':>7} {'sum ms':>7} | {'load':>7} {'theirs':>7} | {'ratio':>6}"
    for row in rows:
        if row.theirs is not None:
            ours, other = sum(row.ours), sum(row.theirs[:2])
            times = f"{milliseconds(row.ours[0], ours)} | {milliseconds(row.theirs[0], other)}"
            yield f"{row.name:<20} | {times} | {other / ours:>5.1f}x"
    yield summed([(sum(row.ours), sum(row.theirs[:2])) for row in rows if row.theirs])


def summed(pairs: list[tuple[float, float]]) -> str:
    """All files together, and the least ratio."""
    ours, other = (sum(side) * 1e3 for side in zip(*pairs, strict=True))
    least = min(second / first for first, second in pairs)
    return (
        f"all: ours {ours:.1f} ms, onnx-tool {other:.1f} ms, {other / ours:.1f} times as long;"
        f" the least ratio of a file is {least:.1f}"
    )


def milliseconds(*seconds: float) -> str:
    """Times in columns."""
    return " ".join(f"{value * 1e3:>7.2f}" for value in seconds)


def main() -> None:
    """Prints the tables."""
    warnings.simplefilter("ignore")
    print("\n".join(by_size()))
    print()
    with tempfile.TemporaryDirectory() as folder:
        rows = [compared(*file) for file in files(Path(folder))]
    print("\n".join((*from_the_model(rows), "", *from_the_file(rows))))


if __name__ == "__main__":
    main()
