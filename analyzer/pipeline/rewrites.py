"""Operators that compute what others of a graph compute in less time, and the graph with them in their place.

What an exporter writes is not always what runs well: an EmbeddingBag becomes a Loop, a cell in a ``for`` of
Python's a thousand operators. Each rule looks for one such pattern and yields what takes its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from analyzer.checks.fusion import Dataflow, gelus, norms
from analyzer.conversion.last_logits import TOKENS, LastLogits, last_logits
from analyzer.graph import DTYPES, Graph, Node, Tensor, names_read
from analyzer.record.analysis import Analysis
from analyzer.text import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The same function by other operators.

    Attributes:
        code: A slug.
        title: What to do.
        nodes: Operators that write what others of the graph write now.
        fix: The fix of ``analyze apply`` that does it; empty where the model's code must change.
        findings: Codes of checks that say the same.
    """

    code: str
    title: str
    nodes: Sequence[Node]
    fix: str = ""
    findings: tuple[str, ...] = ()


def rewrites(graph: Graph, analysis: Analysis) -> Iterator[tuple[Rewrite, Graph, tuple[int, ...]]]:
    """Yield what is found in a graph, the graph with it, and the operators that are gone.

    ``analysis`` is its record.
    """
    rules: tuple[_Rule, ...] = (*_RULES, partial(_fusions, analysis=analysis))
    for rule in rules:
        # Attributes that are none of its operator's: such a graph runs nowhere, but is counted.
        with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            yield from [(one, *_with(graph, one.nodes)) for one in rule(graph) if one.nodes]


def _with(graph: Graph, nodes: Sequence[Node]) -> tuple[Graph, tuple[int, ...]]:
    """Return the graph with other operators in place of those that write the same, and which are gone.

    What only those read goes too.
    """
    new = {tensor.name: tensor for node in nodes for tensor in node.present_outputs}
    stay = [node for node in graph.nodes if not any(tensor.name in new for tensor in node.present_outputs)]
    ordered, waiting = [], [*nodes, *stay]
    missing = Counter(tensor.name for node in waiting for tensor in node.present_outputs)
    while waiting:
        # In the old order, but for what reads a new operator.
        later = []
        for node in waiting:
            if any(missing[name] for name in names_read(node)):
                later.append(node)
            else:
                ordered.append(node)
                missing.subtract(tensor.name for tensor in node.present_outputs)
        if len(later) == len(waiting):
            raise ValueError("what takes the place of others waits for them")
        waiting = later
    read = {tensor.name for tensor in graph.outputs}
    alive: list[Node] = []
    for node in reversed(ordered):
        if any(tensor.name in read for tensor in node.present_outputs):
            read.update(names_read(node))
            alive.insert(0, node)

    def seen(tensors: Sequence[Tensor | None]) -> tuple[Any, ...]:
        return tuple(tensor and new.get(tensor.name, tensor) for tensor in tensors)

    left = {node.index for node in alive}
    return (
        replace(
            graph,
            nodes=tuple(replace(node, index=at, inputs=seen(node.inputs)) for at, node in enumerate(alive)),
            outputs=seen(graph.outputs),
            initializers=(
                *(tensor for tensor in graph.initializers if tensor.name in read),
                *(tensor for node in nodes for tensor in node.present_inputs if _is_new(graph, tensor)),
            ),
        ),
        tuple(node.index for node in graph.nodes if node.index not in left),
    )


def _is_new(graph: Graph, tensor: Tensor) -> bool:
    return tensor.initializer and all(tensor.name != known.name for known in graph.initializers)


_NEW = -1  # the index of an operator that the graph does not have yet
# Versions by which what takes the place of others is placed.
_SINCE: Mapping[str, int] = {
    "Attention": 23, "Conv": 11, "ConvTranspose": 11, "Gather": 13, "Gelu": 20, "GRU": 14, "LSTM": 14,
    "LayerNormalization": 17, "MatMul": 13, "Mul": 14, "ReduceMax": 18, "ReduceMean": 18, "ReduceSum": 13,
    "Reshape": 14, "RMSNormalization": 23, "Transpose": 13,
}  # fmt: skip


class _Operators(list[Node]):
    """Operators that are written one after the other."""

    def add(
        self, kind: str, inputs: Sequence[Tensor | None], to: Tensor | Sequence[int], **attributes: Any
    ) -> Tensor:
        """Add one that writes a tensor, or another of this shape and of its first input's type."""
        first = next(tensor for tensor in inputs if tensor is not None)
        name = f"{first.name}_{kind}_{len(self)}"
        out = to if isinstance(to, Tensor) else Tensor(name=name, shape=tuple(to), dtype=first.dtype)
        if kind == "Reshape":
            inputs = (first, _integers(f"{name}_shape", out.shape or ()))
        self.append(
            Node(
                index=_NEW,
                name=name,
                op_type=kind,
                version=_SINCE[kind],
                inputs=tuple(inputs),
                outputs=(out,),
                attributes=attributes,
            )
        )
        return out


def _integers(name: str, values: Sequence[int | None]) -> Tensor:
    array = np.array([value or 0 for value in values], dtype=np.int64)
    return replace(_weights(name, *array.shape), dtype=DTYPES["int64"], value=array)


def _weights(name: str, *shape: int, like: Tensor | None = None) -> Tensor:
    dtype = DTYPES["float32"] if like is None else like.dtype
    return Tensor(name=name, shape=shape, dtype=dtype, constant=True, initializer=True)


def _sizes(tensor: Tensor | None, rank: int | None = None) -> tuple[int, ...]:
    """Return a shape; empty where a size is open, or the rank another."""
    shape = tensor.shape if tensor is not None and tensor.shape is not None else ()
    known = None not in shape and (rank is None or len(shape) == rank)
    return tuple(size for size in shape if size is not None) if known else ()


def _known(node: Node, position: int) -> tuple[int, ...]:
    """Return the elements of a small constant; empty where there is none."""
    tensor = node.input(position)
    return () if tensor is None or tensor.value is None else tuple(int(one) for one in tensor.value.flat)


def _ends(node: Node, kind: str) -> tuple[Tensor, Tensor] | None:
    """Return the first input and the output of an operator of this type."""
    data, out = node.input(0), node.output(0)
    return (data, out) if node.op_type == kind and data is not None and out is not None else None


def _maker(graph: Graph, tensor: Tensor | None) -> Node | None:
    index = graph.producer.get(tensor.name) if tensor is not None else None
    return None if index is None else graph.nodes[index]


def _before(graph: Graph, tensor: Tensor | None, *through: str) -> Tensor | None:
    """Return what a tensor is made of through operators of these types."""
    while (node := _maker(graph, tensor)) is not None and node.op_type in through:
        tensor = node.input(0)
    return tensor


def _readers(graph: Graph, *tensors: Tensor | None) -> list[Node]:
    return [graph.nodes[at] for one in tensors if one is not None for at in graph.consumers.get(one.name, ())]


def _inside(graph: Graph) -> Iterator[str]:
    """Yield the types of all operators, those of subgraphs too."""
    for node in graph.nodes:
        yield node.op_type
        for body in node.graphs.values():
            yield from _inside(body)


# A mean of the last bag is a sum over its count.
_REDUCTIONS = {"ReduceMean": "mean", "ReduceMax": "amax", "ReduceSum": "sum"}
# What the exporter's Loop over bags does besides; of rows that padding leaves out it does more.
_OF_BAGS = {
    *("Add", "Cast", "CastLike", "Div", "Equal", "Greater", "Identity", "If", "Less", "ReduceSum", "Reshape"),
    *("SequenceInsert", "Shape", "Slice", "Sub"),
}


def _bags(graph: Graph) -> Iterator[Rewrite]:
    """Yield a Loop that reduces each bag of rows by itself: of bags that are equally long one reduction."""
    new, how = _Operators(), ""
    for loop in graph.nodes:
        if loop.op_type != "Loop" or loop.trips is None or not loop.trips.exact:
            continue
        inner = set(_inside(loop.graphs["body"]))
        kind = next((kind for kind in _REDUCTIONS if kind in inner), None)
        joined = [node for node in _readers(graph, *loop.outputs) if node.op_type == "ConcatFromSequence"]
        # Where each bag begins is written down, or the bags may differ in length.
        names = (name for name in dict.fromkeys(names_read(loop)) if name in graph.tensors)
        read = (tensor for name in names if not (tensor := graph.tensors[name]).constant)
        rows = [tensor for tensor in read if tensor.dtype.name != "int64"]
        if kind is None or len(joined) != 1 or len(rows) != 1 or not inner <= {kind, *_OF_BAGS}:
            continue
        scale = _maker(graph, rows[0])
        weights = scale.input(1) if scale is not None and scale.op_type == "Mul" else None
        gather = _maker(graph, _before(graph, rows[0], "Mul"))
        table, ids = (
            (gather.input(0), gather.input(1)) if gather and gather.op_type == "Gather" else (None, None)
        )
        ids, out = _before(graph, ids, "Reshape", "Cast"), joined[0].output(0)
        bags, width = _sizes(ids, 2), _sizes(table, 2)[1:]
        if table is None or out is None or bags[:1] != (loop.trips.count,) or not width:
            continue
        if not all(_even(graph, tensor, *bags) for tensor in _read_by(graph, loop) if tensor.constant):
            continue
        after = _readers(graph, out)
        if len(after) == 1 and (ends := _ends(after[0], "Cast")) and ends[1].dtype is out.dtype:
            out = ends[1]
        taken = new.add("Gather", (table, ids), (*bags, *width), axis=0)
        one = _before(graph, weights, "Unsqueeze", "Expand")
        if weights is not None and (one is None or one.value is None or (one.value != 1).any()):
            spread = new.add("Reshape", (weights,), (*bags, 1))
            taken = new.add("Mul", (taken, spread), (*bags, *width))
        out = replace(out, shape=(bags[0], *width))
        new.add(kind, (taken, _integers(f"{out.name}_axes", (1,))), out, keepdims=0)
        how = _REDUCTIONS[kind]
    title = f"Write nn.EmbeddingBag as nn.Embedding and .{how}(1): the exporter makes a Loop of it"
    yield Rewrite(code="embedding-bag", title=title, nodes=new)


def _read_by(graph: Graph, node: Node) -> Iterator[Tensor]:
    known = {tensor.name: tensor for tensor in graph.initializers} | dict(graph.tensors)
    yield from (known[name] for name in dict.fromkeys(names_read(node)) if name in known)


def _even(graph: Graph, offsets: Tensor, bags: int, length: int) -> bool:
    """Tell whether bags are equally long by where they begin."""
    if offsets.dtype.name != "int64" or _sizes(offsets) not in ((bags,), (bags + 1,)):
        return True
    if offsets.value is None:
        steps = _maker(graph, _before(graph, offsets, "Concat"))
        return steps is not None and steps.op_type == "Range" and _known(steps, 2) == (length,)
    return bool((offsets.value == np.arange(len(offsets.value)) * length).all())


_CELLS = {"LSTMCell": ("LSTM", 4), "GRUCell": ("GRU", 3)}


def _cells(graph: Graph) -> Iterator[Rewrite]:
    """Yield a cell that a ``for`` of Python's calls for each step, where no input waits for the step before."""
    by_module: dict[tuple[str, str], list[Node]] = {}
    for node in graph.nodes:
        if node.module_class in _CELLS:
            by_module.setdefault((node.module, node.module_class), []).append(node)
    for (_, cell), members in by_module.items():
        kind, gates = _CELLS[cell]
        inside = {node.index for node in members}
        # The rows of the sequence, each read by a product.
        rows = [_maker(graph, node.input(0)) for node in members if node.op_type in ("Gemm", "MatMul")]
        steps = [row for row in rows if row is not None and row.op_type == "Gather" and row.index not in inside]
        states = [
            tensor
            for node in members
            for tensor in node.present_outputs
            if tensor in graph.outputs or any(one.index not in inside for one in _readers(graph, tensor))
        ]
        # What follows from a state, and what the cell reads of that: such a loop is no recurrence alone.
        late, waiting = set[str](), _readers(graph, *states)
        while waiting:
            if (node := waiting.pop()).index not in inside:
                new_names = {tensor.name for tensor in node.present_outputs} - late
                late |= new_names
                waiting += _readers(graph, *(graph.tensors[name] for name in new_names))
        in_order = [_known(step, 1) for step in steps] == [(at,) for at in range(len(steps))]
        if not in_order or late.intersection(*(), (name for node in members for name in names_read(node))):
            continue
        data = steps[0].input(0) if steps else None
        sizes, hidden = _sizes(data, 3), _sizes(states[0])[-1] if states and _sizes(states[0]) else 0
        axis = steps[0].attributes.get("axis", 0) if steps else 0
        one_sequence = all(step.input(0) is data for step in steps)
        if data is None or not one_sequence or not sizes or axis > 1 or sizes[axis] != len(steps) or not hidden:
            continue
        new, (length, batch) = _Operators(), (sizes[axis], sizes[1 - axis])
        last = Tensor(name=f"{data.name}_last", shape=(1, batch, hidden), dtype=data.dtype)
        if axis:
            data = new.add("Transpose", (data,), (length, batch, sizes[2]), perm=(1, 0, 2))
        wide = gates * hidden
        stored = ((wide, sizes[2]), (wide, hidden), (2 * wide,))
        weights = [_weights(f"{data.name}_{at}", 1, *shape) for at, shape in enumerate(stored)]
        every = new.add(kind, (data, *weights), (length, 1, batch, hidden), hidden_size=hidden)
        new[-1] = replace(new[-1], outputs=(every, last))
        joins = {
            join.index: join
            for between in _readers(graph, *states)
            if between.index not in inside and between.op_type == "Unsqueeze"
            for join in _readers(graph, between.output(0))
        }
        ends = _ends(next(iter(joins.values())), "Concat") if len(joins) == 1 else None
        if len(states) == 1:
            new.add("Reshape", (last,), states[0])
        elif ends is not None and len(states) == length and prod(_sizes(ends[1])) == length * batch * hidden:
            if _sizes(ends[1])[0] != length:
                every = new.add("Transpose", (every,), (batch, length, 1, hidden), perm=(2, 0, 1, 3))
            new.add("Reshape", (every,), ends[1])
        else:
            continue
        title = f"Call nn.{kind} once instead of nn.{cell} {length:,} times in a loop"
        yield Rewrite(code="recurrent-loop", title=title, nodes=new)


_DFT_20 = 20  # the opset from which the axis is an input, and the last but one where it is left out


def _transforms(graph: Graph) -> Iterator[Rewrite]:
    """Fourier transforms of real signals, for which the CPU alone has kernels."""
    short, whole = _Operators(), _Operators()
    for node in graph.nodes:
        ends = _ends(node, "STFT") or _ends(node, "DFT")
        sizes, result = (_sizes(ends[0]), _sizes(ends[1])) if ends is not None else ((), ())
        if ends is None or sizes[-1:] != (1,) or not result or node.attributes.get("inverse", 0):
            continue
        axis = (_known(node, 2) or (node.attributes.get("axis", 1 if node.version < _DFT_20 else -2),))[0]
        data, out, bins = *ends, result[-2]
        if node.op_type == "STFT" and (step := _known(node, 1)):
            length = (_sizes(node.input(2)) or (sizes[1] - step[0] * (result[1] - 1),))[0]
            signal = short.add("Reshape", (data,), (sizes[0], 1, sizes[1]))
            basis = _weights(f"{out.name}_basis", 2 * bins, 1, length, like=data)
            more = {"strides": step, "kernel_shape": (length,)}
            parts = short.add("Conv", (signal, basis), (sizes[0], 2 * bins, result[1]), **more)
            apart = short.add("Reshape", (parts,), (sizes[0], 2, bins, result[1]))
            short.add("Transpose", (apart,), out, perm=(0, 3, 2, 1))
        elif node.op_type == "DFT" and axis % len(sizes) == len(sizes) - 2:
            signal = whole.add("Reshape", (data,), sizes[:-1])
            basis = _weights(f"{out.name}_basis", sizes[-2], 2 * bins, like=data)
            parts = whole.add("MatMul", (signal, basis), (*sizes[:-2], 2 * bins))
            whole.add("Reshape", (parts,), out)
    title = "Write torch.stft as F.conv1d with the Fourier basis as its filters"
    yield Rewrite(code="stft", title=title, nodes=short)
    yield Rewrite(code="dft", title="Write torch.fft as a multiplication by the Fourier basis", nodes=whole)


def _resamplings(graph: Graph) -> Iterator[Rewrite]:
    """Resizing and pooling with the same weights for all images: a matrix from either side."""
    pairs: dict[str, list[tuple[Tensor, Tensor] | None]] = {}
    pools: dict[str, list[int]] = {}
    for node in graph.nodes:
        if node.attributes.get("mode") in ("cubic", b"cubic"):
            pairs.setdefault("bicubic F.interpolate", []).append(_ends(node, "Resize"))
        if node.module_class == "AdaptiveAvgPool2d":
            pools.setdefault(node.module, []).append(node.index)
    # One or two operators are what it should be.
    pairs["nn.AdaptiveAvgPool2d"] = [_around(graph, each) for each in pools.values() if len(each) > len("ab")]
    for name, result in pairs.items():
        new = _Operators()
        for data, out in filter(None, result):
            sizes, wanted = _sizes(data, 4), _sizes(out, 4)
            if sizes[:2] == wanted[:2] != ():
                columns = _weights(f"{out.name}_columns", sizes[3], wanted[3], like=data)
                rows = _weights(f"{out.name}_rows", wanted[2], sizes[2], like=data)
                half = new.add("MatMul", (data, columns), (*sizes[:3], wanted[3]))
                new.add("MatMul", (rows, half), out)
        title = f"Write {name} as two multiplications by constant matrices"
        yield Rewrite(code="resampling", title=title, nodes=new)


def _folds(graph: Graph) -> Iterator[Rewrite]:
    """Col2Im, for which the CPU alone has a kernel: a transposed convolution with filters of a single 1."""
    new = _Operators()
    for node in graph.nodes:
        ends, block = _ends(node, "Col2Im"), _known(node, 2)
        sizes, image = (_sizes(ends[0], 3), _sizes(ends[1], 4)) if ends is not None else ((), ())
        if ends is None or not block or not sizes or not image:
            continue
        strides, dilations, pads = (
            tuple(node.attributes.get(name) or usual)
            for name, usual in (("strides", (1, 1)), ("dilations", (1, 1)), ("pads", (0, 0, 0, 0)))
        )
        counts = [
            (image[2 + at] + pads[at] + pads[2 + at] - dilations[at] * (block[at] - 1) - 1) // strides[at] + 1
            for at in range(len(block))
        ]
        blocks = new.add("Reshape", (ends[0],), (*sizes[:2], *counts))
        filters = _weights(f"{ends[1].name}_filters", sizes[1], 1, *block, like=ends[0])
        more = {
            "strides": strides,
            "dilations": dilations,
            "pads": pads,
            "group": image[1],
            "kernel_shape": block,
        }
        new.add("ConvTranspose", (blocks, filters), ends[1], **more)
    title = "Write F.fold as F.conv_transpose2d with filters of a single 1"
    yield Rewrite(code="fold", title=title, nodes=new)


def _attentions(graph: Graph) -> Iterator[Rewrite]:
    """Softmax between the two products of an attention."""
    new, count = _Operators(), 0
    for softmax in graph.nodes:
        ends, mask = _ends(softmax, "Softmax"), None
        after = _readers(graph, ends[1]) if ends is not None else []
        if ends is None or not _sizes(ends[1], 4) or len(after) != 1 or after[0].op_type != "MatMul":
            continue
        if after[0].input(0) != ends[1] or softmax.attributes.get("axis", -1) not in (-1, 3):
            continue
        scores, add = ends[0], _maker(graph, ends[0])
        if add is not None and add.op_type == "Add":
            sides = sorted(add.present_inputs, key=lambda tensor: _product(graph, tensor) is None)
            scores, mask = sides[0], sides[-1]
        product = _product(graph, scores)
        keys = _before(graph, product.input(1), "Mul", "Reshape") if product is not None else None
        turn, wide = _maker(graph, keys), _sizes(product.input(1), 4) if product is not None else ()
        turned = _ends(turn, "Transpose") if turn is not None else None
        if product is None or turn is None or turned is None or not wide or not _sizes(after[0].input(1), 4):
            continue
        perm, data = tuple(turn.attributes["perm"]), turned[0]
        perm = (*perm[:-2], perm[-1], perm[-2])
        if perm != tuple(range(len(perm))):
            data = new.add("Transpose", (data,), [_sizes(data)[axis] for axis in perm], perm=perm)
        if _sizes(data) != (rows := (*wide[:2], wide[3], wide[2])):
            data = new.add("Reshape", (data,), rows)
        query = _before(graph, product.input(0), "Mul")
        new.add("Attention", (query, data, after[0].input(1), mask), after[0].outputs[0] or ends[1])
        count += 1
    yield Rewrite(code="fused-attention", title=_fuse("attention", count), nodes=new, fix="fusions")


def _fuse(name: str, count: int) -> str:
    return (
        f"Fuse {'the ' + name if count == 1 else plural(count, name)} into one operator{' each' * (count > 1)}"
    )


def _product(graph: Graph, tensor: Tensor | None) -> Node | None:
    """Return the product of queries and keys that a tensor is, maybe scaled."""
    node = _maker(graph, _before(graph, tensor, "Mul", "Div"))
    return node if node is not None and node.op_type == "MatMul" else None


def _around(graph: Graph, members: Sequence[int]) -> tuple[Tensor, Tensor] | None:
    """Return the one tensor that operators read from outside, and the one that is read outside."""
    inside = [graph.nodes[index] for index in members]
    written = {tensor.name: tensor for node in inside for tensor in node.present_outputs}
    read = {tensor.name: tensor for node in inside for tensor in node.present_inputs if not tensor.constant}
    taken = [tensor for name, tensor in read.items() if name not in written]
    given = [
        tensor
        for name, tensor in written.items()
        if tensor in graph.outputs or not set(members).issuperset(graph.consumers.get(name, ()))
    ]
    return (taken[0], given[0]) if len(taken) == len(given) == 1 else None


_ONE_OPERATOR = {"GELU": "Gelu", "LayerNorm": "LayerNormalization", "RMSNorm": "RMSNormalization"}


def _fusions(graph: Graph, analysis: Analysis) -> Iterator[Rewrite]:
    """Yield the findings A501 and A502, as one operator each."""
    if not {"Erf", "Tanh", "ReduceMean"} & {node.op_type for node in graph.nodes}:
        return
    dataflow, result = Dataflow(analysis=analysis), dict[str, _Operators]()
    for name, members in (*(("GELU", one) for one in gelus(dataflow)), *norms(dataflow)):
        ends = _around(graph, [member.index for member in members])
        if ends is None or ends[0].shape != ends[1].shape or not _sizes(ends[0]):
            continue
        data, weights = (
            ends[0],
            [] if name == "GELU" else [_weights(f"{ends[1].name}_scale", _sizes(ends[0])[-1])],
        )
        if name == "LayerNorm":  # the pattern begins behind what takes the mean away
            data = _before(graph, data, "Sub") or data
        result.setdefault(name, _Operators()).add(_ONE_OPERATOR[name], (data, *weights), ends[1])
    for name, new in result.items():
        yield Rewrite(
            code=f"fused-{name.lower()}",
            title=_fuse(name, len(new)),
            nodes=new,
            fix="fusions",
            findings=("A501" if name == "GELU" else "A502",),
        )


def _logits(graph: Graph) -> Iterator[Rewrite]:
    """Yield the last row of a decoder's logits, where it hands on its past."""
    result = last_logits(graph) if graph.carried else None
    if not isinstance(result, LastLogits):
        return
    product = next(node for node in graph.nodes if node.name == result.product)
    rows, new = graph.tensors[result.rows], _Operators()

    def last(tensor: Tensor) -> tuple[int, ...]:
        sizes = _sizes(tensor)
        return (*sizes[:TOKENS], 1, *sizes[TOKENS + 1 :])

    row = new.add("Gather", (rows, _integers(f"{rows.name}_last", (-1,))), last(rows), axis=TOKENS)
    cut = {rows.name: row}
    for node in graph.nodes[product.index :]:
        # Behind the product all that reads its rows is on the way to the logits.
        if node is product or any(one.name in cut and one is not rows for one in node.present_inputs):
            cut |= {one.name: replace(one, shape=last(one)) for one in node.present_outputs}
            inputs = tuple(one and cut.get(one.name, one) for one in node.inputs)
            outputs = tuple(one and cut[one.name] for one in node.outputs)
            new.append(replace(node, index=_NEW, inputs=inputs, outputs=outputs))
    title = f"Compute the logits of the last of {result.tokens:,} tokens alone (logits_to_keep=1)"
    yield Rewrite(code="last-logits", title=title, nodes=new, fix="last-logits")


_Rule = Callable[[Graph], Iterator[Rewrite]]
_RULES: tuple[_Rule, ...] = (
    _bags, _cells, _transforms, _resamplings, _folds, _attentions, _logits,
)  # fmt: skip
