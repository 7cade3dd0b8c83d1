"""How fast the count is, and how right: against onnx-tool 1.0.1 on the same files, and by size of the graph.

    pip install onnx-tool==1.0.1        # needed by this script alone
    python tests/benchmarks/counting.py

Prints tables. Each time is the best of several runs in this one process, file cache warm. onnx-tool makes its
graph and folds constants in its constructor ("load"), so the sum is what both compare by; the share that it
calls shape inference and profile stands beside it.
"""

from __future__ import annotations

import gc
import io
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
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
LAYERS, WIDTH, HEADS, TOKENS = 12, 192, 3, 128


def best(action: Callable[[], Any], runs: int = 7) -> tuple[float, Any]:
    """The shortest of several runs in seconds, and what the action gave."""
    shortest, result = float("inf"), None
    for _ in range(runs):
        gc.collect()
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


def theirs(path: Path) -> tuple[float, float, float]:
    """Seconds to load, seconds for shape inference and profile, and GMACs of onnx-tool."""
    import onnx_tool

    load_s = infer_s = float("inf")
    for _ in range(7):
        gc.collect()
        start = time.perf_counter()
        model = onnx_tool.Model(str(path), {"verbose": False})
        loaded = time.perf_counter()
        model.graph.shape_infer(None)
        model.graph.profile()
        load_s, infer_s = min(load_s, loaded - start), min(infer_s, time.perf_counter() - loaded)
    return load_s, infer_s, model.graph.macs[0] / 1e9


def milliseconds(*seconds: float) -> str:
    """Times in columns."""
    return " ".join(f"{value * 1e3:>7.2f}" for value in seconds)


def against_onnx_tool(folder: Path) -> Iterator[str]:
    """Times in milliseconds and multiply-accumulates of both tools."""
    yield (
        f"{'model':<20} {'nodes':>6} | {'read':>7} {'graph':>7} {'count':>7} {'sum ms':>7} | {'load':>7}"
        f" {'profile':>7} {'sum ms':>7} | {'ratio':>6} | {'right GMAC':>10} {'ours':>9} {'onnx-tool':>9}"
    )
    sums = [0.0, 0.0]
    for name, path, gflop in files(folder):
        read_s, model = best(lambda path=path: read_model(path))
        graph_s, graph = best(lambda model=model: to_graph(model))
        count_s, table = best(lambda graph=graph: count(graph))
        ours = read_s + graph_s + count_s
        head = f"{name:<20} {len(model.graph.node):>6} | " + milliseconds(read_s, graph_s, count_s, ours)
        macs = f"{gflop / 2:>10.4f} {table.total.macs / 1e9:>9.4f}"
        try:
            load_s, infer_s, their_macs = theirs(path)
        except Exception as error:  # it fails on some models: that is a result too
            yield f"{head} | onnx-tool fails: {type(error).__name__}: {error} | {macs}"
            continue
        other = load_s + infer_s
        sums[0] += ours
        sums[1] += other
        times = milliseconds(load_s, infer_s, other)
        yield f"{head} | {times} | {other / ours:>5.1f}x | {macs} {their_macs:>9.4f}"
    first, second = sums[0] * 1e3, sums[1] * 1e3
    yield f"all files: ours {first:.1f} ms, onnx-tool {second:.1f} ms, {second / first:.1f} times as long"


def main() -> None:
    """Prints both tables."""
    warnings.simplefilter("ignore")
    print("\n".join(by_size()))
    print()
    with tempfile.TemporaryDirectory() as folder:
        for line in against_onnx_tool(Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
