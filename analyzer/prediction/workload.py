"""A graph's groups as arrays of numbers, extracted once and predicted on any device and in any precision."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from analyzer.arrays import Bools, Floats, Ints
from analyzer.costs.cost import ZERO, Cost, Costs, OpenSizeError
from analyzer.graph import Graph, Node, Tensor
from analyzer.operators import INTEGER_PRODUCTS, ON_TEXTS, does_no_work
from analyzer.ort.execution import BIASED, Group
from analyzer.prediction import irregular_pieces
from analyzer.prediction.cuda_pieces import cuda_pieces_of
from analyzer.prediction.features import MANY, chosen_body, form_of, passes, pieces_of, runs_bodies
from analyzer.prediction.layout_changes import (
    LayoutCopies,
    channels_last_copies,
    channels_last_groups,
    layout_copies,
)
from analyzer.prediction.loop_variants import BYTE_POOL
from analyzer.prediction.parameter_updates import ParameterUpdate, parameter_updates
from analyzer.prediction.work_item import FLOAT_BYTES, PRODUCTS, Kind, Piece

# Activations that ONNX Runtime's CPU kernels apply after a product, not while they write its output.
SWEPT = frozenset({"Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Gelu"})

COLUMNS = tuple(field.name for field in fields(Piece) if field.name not in ("kind", "op"))
_NUMBERS = attrgetter(*COLUMNS)
_BY_GROUP = ("kernels", "unknown", "uncounted")
# Where several members without a product share a kernel, the form of the strongest rules.
_STRENGTH = (Kind.SOFTMAX, Kind.NORM, Kind.REDUCE, Kind.POOL, Kind.VECTOR, Kind.MOVE)


# No slots: cached_property writes into the instance's __dict__.
@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Pieces of work as columns, and the groups that they belong to.

    Attributes:
        groups: Number of groups.
        group: Index of the group of each piece.
        kind: ``Kind`` of each piece.
        op: Index into ``ops`` of each piece.
        ops: Operator types.
        columns: The numbers of each piece by attribute of ``Piece``.
        kernels: Kernels that each group launches on a GPU.
        unknown: Whether a group holds an operator of which nothing is known, or not its size.
        uncounted: Whether it holds one of the former.
        copies: How many groups like it its model has, that this one stands for; None where each stands for
            itself.
        model: Which of several models each group belongs to, from 0; None where all are of one.
    """

    groups: int
    group: Ints
    kind: Ints
    op: Ints
    ops: tuple[str, ...]
    columns: dict[str, Floats]
    kernels: Floats
    unknown: Bools
    uncounted: Bools
    copies: Floats | None = None
    model: Ints | None = None

    def __getitem__(self, name: str) -> Floats:
        """Return a column."""
        return self.columns[name]

    @cached_property
    def spread(self) -> Floats:
        """By group, the factor by which its work may be done more or less often, where data decide that."""
        widest = np.ones(self.groups)
        np.maximum.at(widest, self.group, self["spread"])
        return widest

    @cached_property
    def shapes(self) -> tuple[Floats, Ints]:
        """The different (m, n, k) of products, and which each piece has: layers of a model are alike."""
        result, which = np.unique(
            np.stack([self["m"], self["n"], self["k"]], axis=1), axis=0, return_inverse=True
        )
        return result, which.reshape(-1)

    def of_model(self, each: Floats) -> Floats:
        """Of each piece, the sum of a figure of pieces over all of its model."""
        counted = each if self.copies is None else each * self.copies[self.group]
        if self.model is None:
            return np.full(len(each), counted.sum())
        model = self.model[self.group]
        if self.copies is None:  # sessions, each summed up as it is by itself
            parts = np.split(counted, np.flatnonzero(np.diff(model)) + 1)
            return np.concatenate([np.full(len(part), part.sum()) for part in parts])
        return np.asarray(np.bincount(model, weights=counted), dtype=np.float64)[model]

    def only(self, groups: Bools) -> Workload:
        """Return a selection of the groups."""
        pieces = groups[self.group]
        by_group: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else column[groups]
            for name in (*_BY_GROUP, "copies", "model")
        }
        return replace(
            self,
            groups=int(groups.sum()),
            group=(np.cumsum(groups) - 1)[self.group[pieces]],
            kind=self.kind[pieces],
            op=self.op[pieces],
            columns={name: column[pieces] for name, column in self.columns.items()},
            **by_group,
        )


class OperatorPieces:
    """The pieces of operators by themselves, each worked out once, however many sessions run it.

    Most layers of a model are like others of it: operators of one form and cost share their pieces.
    """

    def __init__(self, graph: Graph, table: Costs) -> None:
        self._nodes, self._costs = graph.nodes, table.costs
        self._numbers: dict[int, int] = {}
        self._first_of_form: dict[Hashable, int] = {}
        self._known: dict[int, list[Piece]] = {}
        self._known_on_cuda: dict[int, list[Piece]] = {}

    def of(self, operator: int, *, cuda: bool) -> list[Piece]:
        """Those of one operator in a session; nobody may change them."""
        number = self.number(operator)
        table = self._known_on_cuda if cuda else self._known
        known = table.get(number)
        if known is None:
            rule = cuda_pieces_of if cuda else pieces_of
            known = table[number] = rule(self._nodes[operator], self._costs[operator])
        return known

    def number(self, operator: int) -> int:
        """Return the first operator that is like this one in all that pieces follow from."""
        number = self._numbers.get(operator)
        if number is None:
            number = self._numbers[operator] = self._like(operator)
        return number

    def _like(self, operator: int) -> int:
        node, cost = self._nodes[operator], self._costs[operator]
        if node.graphs:
            return operator
        try:
            form = (form_of(node), cost.flops, cost.macs, cost.bytes_read, cost.bytes_written)
            return self._first_of_form.setdefault(form, operator)
        except TypeError:  # an attribute that is an array
            return operator


def workload(
    graph: Graph,
    table: Costs,
    groups: Sequence[Group],
    *,
    copies: LayoutCopies | None = None,
    operators: OperatorPieces | None = None,
) -> Workload:
    """Return the numbers of all groups that a session executes; their inner tensors do not cross memory.

    ``copies`` between layouts, which such a session inserts, and what ``operators`` are by themselves are
    worked out where they are not known already.
    """
    operators = operators or OperatorPieces(graph, table)
    all_pieces: list[Piece] = []
    owner: list[int] = []
    between: dict[int, list[Piece]] = {}
    for copy in (copies or layout_copies(graph, groups)).copies:
        between.setdefault(copy.group, []).append(copy.piece())
    channels_last = channels_last_groups(graph, groups)
    for index, piece in channels_last_copies(graph, groups, channels_last):
        between.setdefault(index, []).append(piece)
    outputs = frozenset(tensor.name for tensor in graph.outputs)
    known: dict[Hashable, list[Piece]] = {}
    on_gpu = any(_on_cuda(group) for group in groups)
    updates = parameter_updates(graph) if on_gpu else {}
    for index, group in enumerate(groups):
        update = _update_of(group, updates)
        if update is not None:
            pieces = list(update.pieces)
        elif len(group.members) == 1:  # as most are
            pieces = _with_bias(operators.of(group.members[0], cuda=_on_cuda(group)), group)
        else:
            pieces = _fused_pieces(graph, table.costs, group, operators, _inner(graph, group, outputs), known)
        if index in between:
            pieces = pieces + between[index]
        if any(piece.op == BYTE_POOL for piece in pieces):
            # Channels last have a kernel; elsewhere each tap is looked up (core/providers/cpu/nn/pool.cc).
            name = "NhwcMaxPool" if index in channels_last else "MaxPoolOfTaps"
            pieces = [replace(piece, op=name) if piece.op == BYTE_POOL else piece for piece in pieces]
        all_pieces.extend(pieces)
        owner.extend([index] * len(pieces))
    none_known = [cost.basis == "unknown" and cost.flops is None and cost != ZERO for cost in table.costs]
    uncounted = [any(none_known[member] for member in group.members) for group in groups]
    unknown = [
        nothing or any(_is_open(graph.nodes[member]) for member in group.members)
        for nothing, group in zip(uncounted, groups, strict=True)
    ]
    return from_pieces(all_pieces, owner, _launches(graph, groups, updates), unknown, uncounted)


def _update_of(group: Group, updates: Mapping[int, ParameterUpdate]) -> ParameterUpdate | None:
    """Return a parameter's update that the GPU makes."""
    if not updates or len(group.members) != 1 or not _on_cuda(group):
        return None
    return updates.get(group.members[0])


def _on_cuda(group: Group) -> bool:
    return group.session == "cuda" and group.provider == "cuda"


def _launches(graph: Graph, groups: Sequence[Group], updates: Mapping[int, ParameterUpdate]) -> list[float]:
    """Return kernels of each group; what a CUDA session runs on the CPU launches none."""

    def of(group: Group) -> float:
        if group.session == "cuda" and group.provider == "cpu":
            return 0.0
        update = _update_of(group, updates)
        if update is not None:
            return update.kernels
        return float(group.kernels + sum(_in_bodies(graph.nodes[member]) for member in group.members))

    return [of(group) for group in groups]


def _in_bodies(node: Node) -> float:
    """Return kernels that an operator launches in its bodies: those of each operator in each pass."""
    if not runs_bodies(node):
        return 0.0
    try:
        body, (count, _) = chosen_body(node), passes(node)
    except (OpenSizeError, KeyError, IndexError):  # what is scanned has no known length
        return 0.0
    if body is None:
        return 0.0
    return count * sum(_in_bodies(child) if child.graphs else not does_no_work(child) for child in body.nodes)


def from_pieces(
    pieces: Sequence[Piece],
    owner: Sequence[int],
    kernels: Sequence[float],
    unknown: Iterable[bool] | None = None,
    uncounted: Iterable[bool] | None = None,
) -> Workload:
    """Pieces as columns; ``owner`` says which group each belongs to."""
    none = [False] * len(kernels)
    # One row an attribute: a piece is read once for all of them, which costs a third of one at a time.
    rows = np.array([_NUMBERS(piece) for piece in pieces], dtype=np.float64).reshape(len(pieces), len(COLUMNS))
    ops = tuple(dict.fromkeys(piece.op for piece in pieces))
    position = {op: index for index, op in enumerate(ops)}
    return Workload(
        groups=len(kernels),
        group=np.array(owner, dtype=np.int64),
        kind=np.array([piece.kind for piece in pieces], dtype=np.int64),
        op=np.array([position[piece.op] for piece in pieces], dtype=np.int64),
        ops=ops,
        columns=dict(zip(COLUMNS, np.ascontiguousarray(rows.T), strict=True)),
        kernels=np.array(kernels, dtype=np.float64),
        unknown=np.array(none if unknown is None else list(unknown), dtype=np.bool_),
        uncounted=np.array(none if uncounted is None else list(uncounted), dtype=np.bool_),
    )


def whether(work: Workload, names: Collection[str]) -> Bools:
    """By index of an operator type, whether it is one of these."""
    return np.array([op in names for op in work.ops], dtype=np.bool_)


def joined(works: Sequence[Workload]) -> Workload:
    """Return the groups of several, in their order, as of one model."""
    ops = tuple(dict.fromkeys(op for work in works for op in work.ops))
    position = {op: index for index, op in enumerate(ops)}
    offsets = np.cumsum([0, *[work.groups for work in works]])
    renumbered = [np.array([position[op] for op in work.ops], dtype=np.int64)[work.op] for work in works]
    return Workload(
        groups=int(offsets[-1]),
        group=np.concatenate([work.group + offset for work, offset in zip(works, offsets, strict=False)]),
        kind=np.concatenate([work.kind for work in works]),
        op=np.concatenate(renumbered),
        ops=ops,
        columns={name: np.concatenate([work[name] for work in works]) for name in COLUMNS},
        **{name: np.concatenate([getattr(work, name) for work in works]) for name in _BY_GROUP},
    )


def _fused_pieces(
    graph: Graph,
    costs: Sequence[Cost],
    group: Group,
    operators: OperatorPieces,
    inner: frozenset[str],
    known: dict[Hashable, list[Piece]],
) -> list[Piece]:
    """Return the immutable pieces of a group of several; ``known`` holds those of groups by form."""
    form: list[Hashable] = [group.session, group.provider, group.op_type, group.kernels]
    for member in group.members:
        node = graph.nodes[member]
        form += [operators.number(member), _hidden(node.inputs, inner), _hidden(node.outputs, inner)]
    key = tuple(form)
    if key not in known:
        known[key] = _joined_pieces(graph, costs, group, operators, inner)
    return known[key]


def _hidden(tensors: Sequence[Tensor | None], inner: frozenset[str]) -> tuple[bool, ...]:
    """Return which of these tensors stay inside their group."""
    return tuple([tensor is not None and tensor.name in inner for tensor in tensors])


def _joined_pieces(
    graph: Graph, costs: Sequence[Cost], group: Group, operators: OperatorPieces, inner: frozenset[str]
) -> list[Piece]:
    """Return a group's products, and what remains of the others once inner tensors stay on chip."""
    products: list[Piece] = []
    others: list[Piece] = []
    for member in group.members:
        outside = _outside(graph, member, costs[member], inner)
        alone = outside is costs[member]
        on_cuda = _on_cuda(group)
        rule = cuda_pieces_of if on_cuda else pieces_of
        for piece in operators.of(member, cuda=on_cuda) if alone else rule(graph.nodes[member], outside):
            (products if piece.kind in PRODUCTS else others).append(piece)
    if not products:
        return _merged(others, group)
    if group.op_type in INTEGER_PRODUCTS:
        return [_integer_product(graph, products[-1], group, inner)]
    extra = sum(piece.read - piece.weights for piece in others)
    products[-1] = replace(
        products[-1],
        read=products[-1].read + max(0.0, extra),
        # What leaves the group is the last member's, the product's own output an inner tensor.
        written=products[-1].written + sum(piece.written for piece in others),
        fixed=products[-1].fixed + sum(piece.fixed for piece in others),
    )
    return [*_with_bias(products, group), *_swept(others, group)]


def _integer_product(graph: Graph, product: Piece, group: Group, inner: frozenset[str]) -> Piece:
    """Return a product on integers: what crosses its border is what the operators around it read and write."""
    nodes = [graph.nodes[member] for member in group.members]
    made = {tensor.name: tensor for node in nodes for tensor in node.present_outputs}
    read = {tensor.name: tensor for node in nodes for tensor in node.present_inputs}
    outside = [tensor for name, tensor in read.items() if name not in made]
    written = [tensor for name, tensor in made.items() if name not in inner]
    stored = [tensor for tensor in outside if tensor.constant]
    return replace(
        product,
        op=irregular_pieces.family_of_group(group.op_type, nodes, stored),
        read=_float_bytes(outside),
        written=_float_bytes(written),
        weights=_float_bytes(stored),
        fixed=_other_bytes(outside) + _other_bytes(written),
        fixed_weights=_other_bytes(stored),
    )


def _float_bytes(tensors: Iterable[Tensor]) -> float:
    return sum((tensor.elements or 0) * FLOAT_BYTES for tensor in tensors if not tensor.dtype.is_packed)


def _other_bytes(tensors: Iterable[Tensor]) -> float:
    return float(sum(tensor.nbytes or 0 for tensor in tensors if tensor.dtype.is_packed))


def _swept(others: list[Piece], group: Group) -> list[Piece]:
    """On a CPU, activations other than Relu are a pass of their own over the product's output in cache."""
    if group.provider != "cpu":
        return []
    passes = (piece for piece in others if piece.op in SWEPT)
    return [replace(piece, read=0.0, written=0.0, fixed=0.0, weights=0.0) for piece in passes]


def _with_bias(pieces: list[Piece], group: Group) -> list[Piece]:
    """Return the kernel of a bias on a GPU: Gemm first writes it over its whole output, Conv adds it."""
    if not _on_cuda(group) or group.op_type not in BIASED or group.kernels < 2:
        return pieces
    for piece in pieces:
        if piece.kind not in (Kind.MATMUL, Kind.CONV, Kind.DEPTHWISE):
            continue
        first = piece.kind == Kind.MATMUL
        size = piece.batch * piece.m * piece.n * FLOAT_BYTES if first else piece.written
        bias = Piece(
            kind=Kind.BIAS,
            op="BroadcastBias" if first else "AddBias",
            read=0.0 if first else size,
            written=size,
            elements=size / FLOAT_BYTES,
        )
        return [*pieces, bias]
    return pieces


def _merged(pieces: list[Piece], group: Group) -> list[Piece]:
    if not pieces:
        return []
    many = group.op_type in MANY  # as Gathers that became one Split
    # A Transpose that was pushed through them is done to each part: its bytes pass memory once more.
    pushed = [piece for piece in pieces if many and piece.op.startswith("Transpose")]
    pieces = [piece for piece in pieces if piece not in pushed] or pieces
    # Of an operator between Q and DQ nodes, the operator: by its name, else by the form of its kernel.
    named = [piece for piece in pieces if piece.op.startswith(group.op_type)] or pieces
    main = min(named, key=lambda piece: (_STRENGTH.index(piece.kind), -piece.elements))
    return [
        *(replace(piece, written=piece.read) for piece in pushed),
        replace(
            main,
            op=main.op if main.op.startswith(group.op_type) else group.op_type,
            flops=sum(piece.flops for piece in pieces),
            read=sum(piece.read for piece in [*pieces, *pushed]),
            written=sum(piece.written for piece in pieces),
            fixed=sum(piece.fixed for piece in pieces),
            elements=(sum if many else max)(piece.elements for piece in pieces),
            batch=float(len(pieces)) if many else main.batch,
        ),
    ]


def _inner(graph: Graph, group: Group, outputs: frozenset[str]) -> frozenset[str]:
    """Return names of the tensors that live and die inside the group; ``outputs`` are the model's."""
    members = frozenset(group.members)
    return frozenset(
        [
            tensor.name
            for member in group.members
            for tensor in graph.nodes[member].outputs
            if tensor is not None
            and tensor.name not in outputs
            and members.issuperset(graph.consumers.get(tensor.name, (-1,)))
        ]
    )


def _outside(graph: Graph, member: int, cost: Cost, inner: frozenset[str]) -> Cost:
    """Return the member's cost without the bytes of inner tensors."""
    node = graph.nodes[member]
    read = _without(cost.bytes_read, node.inputs, inner)
    written = _without(cost.bytes_written, node.outputs, inner)
    if read == cost.bytes_read and written == cost.bytes_written:
        return cost
    # Not ``dataclasses.replace``, which takes four times as long.
    return Cost(
        flops=cost.flops,
        macs=cost.macs,
        bytes_read=read,
        bytes_written=written,
        basis=cost.basis,
        note=cost.note,
    )


def _without(nbytes: int | None, tensors: Sequence[Tensor | None], inner: frozenset[str]) -> int | None:
    hidden = sum(tensor.nbytes or 0 for tensor in tensors if tensor is not None and tensor.name in inner)
    if not hidden:  # most operators of most groups: the sum over all tensors is spared
        return nbytes
    whole = sum(tensor.nbytes or 0 for tensor in tensors if tensor is not None)
    return max(0, round((whole if nbytes is None else nbytes) * (1 - hidden / whole)))


def _is_open(node: Node) -> bool:
    """Return whether a result's size is not known, and not for want of one (sequences, maps)."""
    if node.op_type in ON_TEXTS and (source := node.input(0)) is not None and source.elements is not None:
        return False  # how many tokens a text has decides what is written; its bytes decide the time
    return any(tensor.elements is None and "(" not in tensor.dtype.name for tensor in node.present_outputs)
