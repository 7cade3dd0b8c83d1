"""Small graphs made by hand, their costs and groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analyzer.costs import CostTable, count
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.ort.execution import Group
from analyzer.prediction import Workload, workload


def tensor(name: str, *shape: int, dtype: str = "float32", constant: bool = False) -> Tensor:
    return Tensor(name=name, shape=shape, dtype=DTYPES[dtype], constant=constant, initializer=constant)


def node(op: str, inputs: list[Tensor], output: Tensor, index: int = 0, **attributes: Any) -> Node:
    return Node(
        index=index,
        name=f"n{index}",
        op_type=op,
        version=20,
        inputs=tuple(inputs),
        outputs=(output,),
        attributes=attributes,
    )


def given(*values: float, dtype: str = "int64") -> Tensor:
    """Stored numbers that a rule reads; one is a scalar."""
    value = np.array(values if len(values) != 1 else values[0], dtype)
    return replace(tensor("_".join(map(str, values)), *value.shape, dtype=dtype, constant=True), value=value)


def of(op: str, inputs: Sequence[Any], output: Any, domain: str = "ai.onnx", **attributes: Any) -> Node:
    """An operator of tensors, those of floats given by shape."""
    tensors = [one if isinstance(one, Tensor) else tensor(f"x{at}", *one) for at, one in enumerate(inputs)]
    result = output if isinstance(output, Tensor) else tensor("y", *output)
    return replace(node(op, tensors, result, **attributes), domain=domain)


def graph(*nodes: Node) -> Graph:
    made = {item.name for one in nodes for item in one.present_outputs}
    read = {item.name: item for one in nodes for item in one.present_inputs}
    last = nodes[-1].outputs[0]
    assert last is not None
    return Graph(
        name="g",
        nodes=nodes,
        inputs=tuple(item for name, item in read.items() if name not in made and not item.constant),
        outputs=(last,),
        initializers=tuple(item for item in read.values() if item.constant),
        opsets={"ai.onnx": 20},
    )


def alone(one: Graph, session: Any = "cuda", kernels: int = 1) -> tuple[Group, ...]:
    return tuple(
        Group(
            session=session,
            name=item.name,
            op_type=item.op_type,
            members=(item.index,),
            provider=session,
            kernels=kernels,
        )
        for item in one.nodes
    )


def work(one: Graph, session: Any = "cuda", groups: tuple[Group, ...] | None = None) -> Workload:
    return workload(one, count(one), groups or alone(one, session))


def table(one: Graph) -> CostTable:
    return count(one)


def product(m: int, n: int, k: int, batch: int = 1, constant: bool = True) -> Graph:
    """[batch, m, k] by [k, n], or by [batch, k, n] where it is not constant."""
    left = tensor("x", batch, m, k) if batch > 1 else tensor("x", m, k)
    shared = constant or batch == 1
    right = tensor("w", k, n, constant=constant) if shared else tensor("w", batch, k, n)
    out = tensor("y", batch, m, n) if batch > 1 else tensor("y", m, n)
    return graph(node("MatMul", [left, right], out))


def elementwise(op: str, elements: int, operands: int = 1) -> Graph:
    inputs = [tensor(f"x{position}", elements) for position in range(operands)]
    return graph(node(op, inputs, tensor("y", elements)))


def trees(rows: int, trees: int, depth: int) -> Graph:
    """Complete trees numbered as heaps: each row takes ``depth`` comparisons and an addition in each."""
    inner, size = 2**depth - 1, 2 ** (depth + 1) - 1
    nodes = [index for _ in range(trees) for index in range(size)]
    attributes: dict[str, Any] = {
        "n_targets": 1,
        "nodes_treeids": [tree for tree in range(trees) for _ in range(size)],
        "nodes_nodeids": nodes,
        "nodes_featureids": [0] * len(nodes),
        "nodes_modes": ["LEAF" if index >= inner else "BRANCH_LEQ" for index in nodes],
        "nodes_truenodeids": [0 if index >= inner else 2 * index + 1 for index in nodes],
        "nodes_falsenodeids": [0 if index >= inner else 2 * index + 2 for index in nodes],
        "target_treeids": [tree for tree in range(trees) for _ in range(size - inner)],
    }
    one = node("TreeEnsembleRegressor", [tensor("x", rows, 8)], tensor("y", rows, 1), **attributes)
    return graph(replace(one, domain="ai.onnx.ml", version=3))


def convolution(batch: int, channels: int, filters: int, size: int, kernel: int = 3, group: int = 1) -> Graph:
    """Stride 1, padding that keeps the size."""
    weight = tensor("w", filters, channels // group, kernel, kernel, constant=True)
    pad = kernel // 2
    return graph(
        node(
            "Conv",
            [tensor("x", batch, channels, size, size), weight],
            tensor("y", batch, filters, size, size),
            kernel_shape=(kernel, kernel),
            strides=(1, 1),
            pads=(pad,) * 4,
            group=group,
        )
    )


def flops(one: Graph) -> float:
    return float(math.fsum(cost.flops or 0 for cost in count(one).costs))
