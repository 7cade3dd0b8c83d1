"""Inputs that nobody gives: by the layers that read them, and by the standard names of Hugging Face.

Readers are found by a partial ``torch.fx`` trace of ``forward``: PyTorch's own layers are leaves, a user's
modules are traced into. A trace that ends part way, as at control flow on values, has recorded all before.
Between an input and its reader the functions run on tensors without data whose sizes are primes: a prime that
arrives shows which axis it was.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from analyzer.loading.python.input_spec import GRAPH_EDGES, InputSpec
from analyzer.loading.python.layers import (
    IMAGE_SIDE,
    INDEX,
    INDICES,
    LENGTH,
    LENGTHS,
    NAMED,
    NAMED_IN_TRANSFORMERS,
    OpenLength,
    OpenSide,
    OpenWidth,
    Taken,
    TriedSizes,
    arguments_taken_by,
    images,
    sequence_layer,
    vectors,
)
from analyzer.loading.python.model_weights import unchanged
from analyzer.loading.torch_private import autowrap, held_tensors, tensor_factories
from analyzer.text import listed

if TYPE_CHECKING:
    from torch import Tensor, fx
    from torch.fx import Graph, Node
    from torch.nn import Module

# Sizes of axes: primes, so that none is a product of others, above the batches and widths of usual layers.
_PRIMES = (1009, 1013, 1019, 1021, 1031)
_BATCH, _LENGTH, _SIDE = _PRIMES[:3]
_STANDING_FOR: Mapping[type, int] = {OpenLength: _LENGTH, OpenSide: _SIDE}
# Before the tokens: one for the class, and its like.
_MOST_FURTHER_TOKENS = 4
# A longer table of positions has the most that anyone may give.
_LONGEST = 4096
_FRAMES = OpenLength(8)

# Of the shape of their first operand, where another is unknown or tensors without data have no such function.
_ELEMENTWISE = frozenset(
    {"add", "and_", "cpu", "div", "iadd", "imul", "invert", "masked_fill", "masked_fill_", "mul", "or_", "sub"}
    | {"pack_padded_sequence", "truediv", "type_as"}
)
# These read the size and the type of an operand, not its values.
_BY_SIZE = frozenset(
    {"dim", "size", "empty_like", "expand_as", "full_like", "ones_like", "new_full", "new_ones", "new_zeros"}
)
_SIZES = ("device", "dtype", "ndim", "shape")
# True is what is kept; of what is filled it is what is left out, and all of that has no result.
_MASK, _FILLED = Taken(dtype="bool", values=(1,)), Taken(dtype="bool", values=(0,))
# Of the mask of a tokenizer; what is compared may have any type.
_COMPARED = Taken(dtype="int64", strength=0)
# Of a width that a later layer decides.
_WITH_OTHERS = Taken(dtype="float32", shapes=((None, OpenWidth(LENGTH)),), strength=1)
# By function, the operand that is read, its keyword, and what it must be.
_READ_BY: Mapping[str, tuple[int, str, Taken]] = {
    **dict.fromkeys(("embedding", "embedding_bag"), (0, "input", INDICES)),
    "one_hot": (0, "tensor", INDICES),
    **dict.fromkeys(("gather", "index_select", "index_add", "scatter", "scatter_add"), (2, "index", INDEX)),
    "pack_padded_sequence": (1, "lengths", LENGTHS),
    "invert": (0, "input", _MASK),
    **dict.fromkeys(("masked_fill", "masked_fill_"), (1, "mask", _FILLED)),
    "masked_select": (1, "mask", _MASK),
    "where": (0, "condition", _MASK),
    **dict.fromkeys(("eq", "ne"), (0, "input", _COMPARED)),
}


@dataclass(frozen=True, slots=True)
class InputTrace:
    """The part of a ``forward`` that was traced.

    Attributes:
        model: With tensors that have no data.
        graph: As far as it was recorded.
        roots: By input, the nodes that are it; of a dict or a tuple, by member.
        flags: Inputs that are a condition.
    """

    model: Module
    graph: Graph
    roots: Mapping[str, Sequence[Node]]
    flags: Collection[str]
    _constants: dict[Node, Any] = field(default_factory=dict)

    def readings(self, name: str) -> list[Taken]:
        """Return what the readers of an input take, with shapes of the input, in the order of execution."""
        roots, unpacked = self.roots[name], self._unpacked_rank(name)
        result: dict[tuple[int, int], Taken] = {}
        fitting: dict[tuple[int, int], list[tuple[bool, int, TriedSizes]]] = {}
        for sizes in (_PRIMES[:rank] for rank in range(1, len(_PRIMES) + 1)):
            read, least = self._read_at(roots, sizes)
            for place, taken, value in read:
                result.setdefault(place, taken)
                options = fitting.setdefault(place, [])
                if options and least:  # what is taken apart by numbers has as few axes as it can
                    continue
                for position, shape in enumerate(taken.shapes):
                    fitted = _before(value, shape, sizes, least)
                    if fitted is not None:
                        options.append((len(sizes) != unpacked, position, fitted))
        return [_with_shapes(result[place], fitting[place]) for place in sorted(result)]

    def _read_at(
        self, roots: Sequence[Node], sizes: Sequence[int]
    ) -> tuple[list[tuple[tuple[int, int], Taken, Tensor]], dict[int, int]]:
        """Return the readers of an input of these sizes, and by axis the least size that numbers take apart."""
        import torch

        # No model's own type: what has another was cast.
        values: dict[Node, Any] = dict.fromkeys(roots, torch.empty(sizes, dtype=torch.float64))
        views = set(roots)
        read: list[tuple[tuple[int, int], Taken, Tensor]] = []
        least: dict[int, int] = {}
        for order, node in enumerate(self.graph.nodes):
            if node in values or not any(item in values for item in node.all_input_nodes):
                continue
            ends = False
            for position, (operand, taken) in enumerate(self._readers(node)):
                value = values.get(operand)
                if operand not in views or not isinstance(value, torch.Tensor):
                    continue
                ends = True
                if value.dtype is not torch.float64:
                    taken = _COMPARED if taken.dtype == "bool" else replace(taken, strength=0)
                read.append(((order, position), taken, value))
            if ends:
                continue
            _note_parts(node, values, sizes, least)
            try:
                values[node] = self._evaluated(node, values)
            except Exception:  # it needs another input, or these sizes do not fit
                first = next(iter(_operands(node)), None)
                if _name(node) not in _ELEMENTWISE or first not in values:
                    continue
                values[node] = values[first]
            if isinstance(values[node], torch.Tensor) and _reads_values(node, views):
                views.add(node)
        return read, least

    def sequences(self, known: Mapping[str, InputSpec]) -> tuple[int | None, bool]:
        """Return the length that a table of positions has, and whether sequences come before the batch."""
        import torch

        values: dict[Node, Any] = {}
        for name, spec in known.items():
            sizes = [
                _BATCH if size is None else _STANDING_FOR.get(type(size), int(size)) for size in spec.shape
            ]
            tensor = torch.empty(sizes, dtype=getattr(torch, spec.dtype))
            values |= dict.fromkeys(self.roots[name], tensor)
        views = set(values)
        for node in self.graph.nodes:
            if node in values or not all(item in values for item in node.all_input_nodes):
                continue
            length = self._length_at(node, values, views)
            if length is not None and 1 < length <= _LONGEST:
                return length, False
            layer = sequence_layer(self._layer(node)) if node.op == "call_module" else None
            if layer is not None:
                first = values[node.all_input_nodes[0]] if node.all_input_nodes else None
                shape = tuple(first.shape) if isinstance(first, torch.Tensor) else ()
                return None, not layer.batch_first and len(shape) == 3 and shape[0] == _BATCH
            with suppress(Exception):
                values[node] = self._evaluated(node, values)
                if _reads_values(node, views):
                    views.add(node)
        return None, False

    def _length_at(self, node: Node, values: Mapping[Node, Any], views: Collection[Node]) -> int | None:
        """Return the length of a sequence to which this node adds or looks up positions."""
        import torch
        from torch import nn

        operands = [values.get(item) for item in node.all_input_nodes]
        tensors = [item for item in operands if isinstance(item, torch.Tensor)]
        pairs: list[tuple[int, int]] = []
        if node.op == "call_module" and isinstance(layer := self._layer(node), nn.Embedding):
            if tensors and node.all_input_nodes[0] not in views:
                pairs = [(size, layer.num_embeddings) for size in tensors[0].shape]
        elif _name(node) in ("add", "iadd") and len(tensors) == 2:
            pairs = [
                pair
                for sizes in zip(reversed(tensors[0].shape), reversed(tensors[1].shape), strict=False)
                for pair in (sizes, sizes[::-1])
                if len({*sizes, 1}) == 3
            ]
        further = [(size - _LENGTH, there) for size, there in pairs]
        return next((there - more for more, there in further if 0 <= more <= _MOST_FURTHER_TOKENS), None)

    def _readers(self, node: Node) -> Iterator[tuple[Node, Taken]]:
        for argument, taken in self.arguments(node):
            for item in argument if isinstance(argument, (tuple, list)) else (argument,):
                if hasattr(item, "all_input_nodes"):
                    yield item, taken

    def arguments(self, node: Node) -> Iterator[tuple[Any, Taken]]:
        """Return the arguments of a node on which it makes demands, with these."""
        if node.op == "call_module":
            layer = self._layer(node)
            taken_by = NAMED_IN_TRANSFORMERS if is_of_transformers(layer) else arguments_taken_by(layer)
            with suppress(TypeError):
                given = inspect.signature(layer.forward).bind(*node.args, **node.kwargs).arguments
                yield from ((given[name], taken) for name, taken in taken_by.items() if name in given)
            return
        name, operands = _name(node), _operands(node)
        if name in _READ_BY:
            position, keyword, taken = _READ_BY[name]
            if position < len(operands) or keyword in node.kwargs:
                yield operands[position] if position < len(operands) else node.kwargs[keyword], taken
        elif name == "getitem":
            index = operands[1] if isinstance(operands[1], tuple) else operands[1:]
            yield from ((item, INDEX) for item in index)
        elif name in ("cat", "concat", "concatenate"):
            # The layer that reads all of it decides how wide the one is that has no layer before.
            members = [root for roots in self.roots.values() for root in roots]
            inputs = [item for item in (operands or tuple(node.kwargs.values()))[0] if item in members]
            if len(inputs) == 1:
                yield inputs[0], _WITH_OTHERS
        elif len(operands) > 1:
            yield from self._weighed(name, operands[0], operands[1])

    def _weighed(self, name: str, operand: Any, weight: Any) -> Iterator[tuple[Any, Taken]]:
        """Return what a function takes that multiplies with a weight of the model."""
        with suppress(Exception):
            sizes = tuple(self._constant(weight).shape)
            dtype = str(self._constant(weight).dtype).removeprefix("torch.")
            if name in ("conv1d", "conv2d", "conv3d"):
                yield operand, Taken(dtype=dtype, shapes=images(sizes[1], len(sizes) - 2))
            elif name in ("linear", "matmul", "mm"):
                width = sizes[-1] if name == "linear" else sizes[-2]
                yield operand, Taken(dtype=dtype, shapes=vectors(width))

    def _layer(self, node: Node) -> Module:
        return self.model.get_submodule(str(node.target))

    def _evaluated(self, node: Node, values: Mapping[Node, Any]) -> Any:
        from torch.fx.node import map_arg
        from torch.nn.parameter import is_lazy

        def value(item: Node) -> Any:
            return values[item] if item in values else self._constant(item)

        arguments, keywords = map_arg((node.args, node.kwargs), value)
        match node.op:
            case "call_function":
                return node.target(*arguments, **keywords)  # type: ignore[operator]  # a function there
            case "call_method":
                return getattr(arguments[0], str(node.target))(*arguments[1:], **keywords)
            case "call_module" if not any(map(is_lazy, self._layer(node).parameters())):
                # A lazy layer would keep the sizes of this call.
                return self._layer(node)(*arguments, **keywords)
            case "get_attr":
                return operator.attrgetter(str(node.target))(self.model)
        raise LookupError(node.name)

    def _constant(self, node: Node) -> Any:
        """Return the value of a node on which no input has a say."""
        if node not in self._constants:
            self._constants[node] = self._evaluated(node, {})
        return self._constants[node]

    def _unpacked_rank(self, name: str) -> int:
        """Return how many sizes of an input are read by number; 0 where that says nothing of its axes."""
        highest = 0
        for root in self.roots[name]:
            for user in root.users:
                numbers = list(_operands(user)[1:]) if _name(user) == "size" else []
                if _name(user) in ("getattr", "size"):
                    numbers += [item.args[1] for item in user.users if _name(item) == "getitem"]
                highest = max([highest, *(number for number in numbers if isinstance(number, int))])
        return highest + 1 if highest else 0


def _note_parts(node: Node, values: Mapping[Node, Any], sizes: Sequence[int], least: dict[int, int]) -> None:
    """Note the least sizes of axes of which a node takes one, or the first ones, by number."""
    operands = _operands(node)
    if _name(node) != "getitem" or not hasattr(values.get(operands[0]), "dim"):
        return
    index = operands[1] if isinstance(operands[1], tuple) else operands[1:]
    for size, item in zip(values[operands[0]].shape, index, strict=False):
        if not isinstance(item, (int, slice)):
            return
        axis = sizes.index(size) if size in _PRIMES else 0
        last: object = item.stop if isinstance(item, slice) else item + 1
        if axis and isinstance(last, int) and last > 0:
            least[axis] = max(last, least.get(axis, 0))


def _before(
    value: Tensor, shape: TriedSizes, sizes: Sequence[int], least: Mapping[int, int]
) -> TriedSizes | None:
    """Return the shape of an input that arrives at its reader in this shape; None where none does.

    Args:
        value: What arrives of an input of ``sizes``.
        shape: What the reader takes.
        sizes: Primes, and what is known.
        least: By axis, the least size.
    """
    if value.dim() != len(shape):
        return None
    arrived: dict[int, int | None] = {}
    for size, wanted in zip(value.shape, shape, strict=True):
        if size in sizes and size in _PRIMES:
            arrived[sizes.index(size)] = wanted
        elif type(wanted) is int and wanted != size:  # sizes that are but usual are of other types
            return None
    if not arrived:
        return None
    usual: OpenLength = _FRAMES if any(isinstance(size, OpenSide) for size in shape) else LENGTH
    fitted: list[int | None] = []
    for axis, size in enumerate(sizes):
        if axis in arrived:
            fitted.append(arrived[axis])
        elif size not in _PRIMES:
            fitted.append(size)
        elif axis == 0:
            fitted.append(None)
        elif axis in least:
            fitted.append(OpenLength(least[axis]))
        elif len(sizes) == len(shape) and isinstance(shape[axis], (OpenLength, OpenSide)):
            fitted.append(shape[axis])
        else:
            fitted.append(usual)
    return tuple(fitted)


def _with_shapes(taken: Taken, options: Sequence[tuple[bool, int, TriedSizes]]) -> Taken:
    """Return what a reader takes with the input's shapes in the place of its own, most usual first."""
    ordered = sorted(options, key=lambda option: option[:2])
    pairs = dict.fromkeys(
        (shape, taken.values[position] if position < len(taken.values) else None)
        for _, position, shape in ordered
    )
    values = tuple(value for _, value in pairs if value is not None) or taken.values[:1]
    return replace(taken, shapes=tuple(shape for shape, _ in pairs), values=values)


def _operands(node: Node) -> tuple[Any, ...]:
    return tuple(node.args)


def _name(node: Node) -> str:
    is_function = node.op in ("call_function", "call_method")
    return str(getattr(node.target, "__name__", node.target)) if is_function else ""


def _reads_values(node: Node, views: Collection[Node]) -> bool:
    """Return whether a node's result follows from values of one of these, not from its size alone."""
    if _name(node) in _BY_SIZE:
        return _name(node) == "expand_as" and node.args[0] in views
    if _name(node) == "getattr" and node.args[1] in _SIZES:
        return False
    return any(item in views for item in node.all_input_nodes)


@contextmanager
def traced(model: Module, names: Sequence[str]) -> Iterator[InputTrace]:
    """Give the trace of a model's ``forward`` for the inputs that it needs and for these.

    Inside the block its tensors have no data.
    """
    import torch
    from torch.nn.parameter import is_lazy

    with unchanged(model):
        graph, flags = longest_graph(model, names)
    with unchanged(model):
        for module in model.modules():
            for table in held_tensors(module):
                for name, tensor in table.items():
                    if tensor is not None and not is_lazy(tensor):  # which has no size yet
                        table[name] = tensor.to("meta")
        with torch.device("meta"):
            yield InputTrace(model, graph, _roots(model, graph), flags)


def _roots(model: Module, graph: Graph) -> dict[str, list[Node]]:
    """Return the nodes that are inputs: of a dict those of its keys, of a tuple those of its positions."""
    result: dict[str, list[Node]] = {}

    def add(name: str, node: Node) -> None:
        keys = {user: _key(user, node) for user in node.users}
        positions = {key for key in keys.values() if isinstance(key, int)}
        # The two rows of pairs of nodes are one tensor.
        is_tuple = name != GRAPH_EDGES and len(positions) > 1 and positions == {*keys.values()}
        members = {user: key for user, key in keys.items() if isinstance(key, str) or is_tuple}
        for user, key in members.items():
            add(f"{name}.{key}", user)
        if not members:
            result.setdefault(name, []).append(node)

    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    trace = InputTrace(model, graph, {}, ())
    for node in list(graph.nodes):
        pairs = [item for item, taken in trace.arguments(node) if taken.is_pair and item in placeholders]
        for pair in pairs:
            with graph.inserting_before(node):
                states = tuple(graph.call_function(operator.getitem, (pair, place)) for place in (0, 1))
            node.args = tuple(states if item is pair else item for item in node.args)
            node.kwargs = {name: states if item is pair else item for name, item in node.kwargs.items()}
    for node in placeholders:
        add(str(node.target), node)
    return result


def _key(user: Node, node: Node) -> str | int | None:
    """Return the key or the position by which a member is taken of what a node is."""
    operands = _operands(user)
    if _name(user) in ("getitem", "get") and operands[0] is node and isinstance(operands[1], (str, int)):
        return operands[1]
    return None


# Far above the first readers of usual models, in a tenth of a second.
_MOST_NODES = 1000
# Conditions that depend on values count as false, then as true where that ends in an error.
_MOST_TRACES = 6


def longest_graph(model: Module, names: Sequence[str]) -> tuple[Graph, frozenset[str]]:
    """Return what is recorded of a ``forward`` before an error, and the inputs that are conditions."""
    from torch import fx

    longest, flags = fx.Graph(), set[str]()
    decisions: list[bool] = []
    for _ in range(_MOST_TRACES):
        tracer: Any = _tracer(model, names, decisions)
        ended = True
        try:
            tracer.trace(model)
        except OverflowError:
            pass
        except Exception:  # whatever a forward raises that is given no tensors
            ended = False
        graph = getattr(tracer, "graph", longest)
        longest = graph if len(graph.nodes) > len(longest.nodes) else longest
        flags |= tracer.flags
        while tracer.taken and tracer.taken[-1]:
            tracer.taken.pop()
        if ended or not tracer.taken:
            break
        decisions = [*tracer.taken[:-1], True]
    switches = [node.kwargs.get("training") for node in longest.nodes]
    flags |= {str(item.target) for item in switches if isinstance(item, fx.Node) and item.op == "placeholder"}
    return longest, frozenset(flags)


def _tracer(model: Module, names: Sequence[str], decisions: Sequence[bool]) -> fx.Tracer:
    """Return a tracer of a model's ``forward`` for which conditions that depend on values hold or not.

    ``names`` are traced besides inputs without a default; ``decisions`` are whether the first conditions hold.
    """
    from torch import fx
    from torch.nn.utils import rnn

    signature = inspect.signature(model.forward)

    class Tracer(fx.Tracer):
        proxy_buffer_attributes = True

        def __init__(self) -> None:
            functions = (rnn.pack_padded_sequence, rnn.pad_packed_sequence, rnn.pad_sequence)
            super().__init__(autowrap_functions=(*tensor_factories(), *functions))
            autowrap(self, rnn)
            self.taken: list[bool] = []
            self.flags: set[str] = set()

        def is_leaf_module(self, m: Module, _: str) -> bool:
            where = str(getattr(type(m).forward, "__module__", ""))
            in_torch = where.startswith("torch.nn.modules.") and not where.endswith(".container")
            return in_torch or is_of_transformers(m)

        def create_args_for_root(self, *_: object, **__: object) -> tuple[Any, list[Any]]:
            bound = signature.bind_partial()
            for name, item in signature.parameters.items():
                is_variadic = item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
                if name in names or (item.default is item.empty and not is_variadic):
                    bound.arguments[name] = self.create_proxy("placeholder", name, (), {})
            return lambda: model.forward(*bound.args, **bound.kwargs), []

        def create_node(self, *arguments: Any, **keywords: Any) -> Node:
            if len(self.graph.nodes) >= _MOST_NODES:
                raise OverflowError
            return super().create_node(*arguments, **keywords)

        def to_bool(self, obj: fx.Proxy) -> bool:
            if obj.node.op == "placeholder":
                self.flags.add(str(obj.node.target))
            position = len(self.taken)
            self.taken.append(position < len(decisions) and decisions[position])
            return self.taken[-1]

    return Tracer()


def is_of_transformers(layer: Module) -> bool:
    """Return whether a module is of Hugging Face's library, whose arguments have standard names."""
    return type(layer).__module__.startswith("transformers.")


# Of a usual graph.
_NODES, _EDGES = 100, 400
# What models call the side of the images that they are built for.
_SIDES = ("img_size", "image_size", "input_size", "resolution", "input_resolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredInput:
    """The known facts of one input.

    Attributes:
        dtype: Its type; ``float32`` where nothing decides it.
        specs: What to try, most usual first; empty where no layer decides the shape.
        is_flag: Whether it is a condition, which is no batch.
        value: Of all its elements, where its reader says it of a mask whose shape that leaves open.
        rows: How many nodes or edges it is of; None in a model of no graph.
    """

    name: str
    dtype: str = "float32"
    specs: tuple[InputSpec, ...] = ()
    is_flag: bool = False
    value: int | None = None
    rows: int | None = None

    @property
    def is_sized(self) -> bool:
        """Return whether layers, or what is usual where they leave it open, give its shape."""
        widths = [size for spec in self.specs for size in spec.shape if isinstance(size, OpenWidth)]
        return self.is_flag or bool(self.specs and not widths)

    @property
    def text(self) -> str:
        """As ``--input`` takes it, with ``...`` for sizes that are not known."""
        if self.is_flag:
            return f"{self.name}=:bool=0"
        return self.specs[0].text if self.is_sized else f"{self.name}={self.rows or 'B'},...:{self.dtype}"


def options_to_give(inferred: Sequence[InferredInput]) -> str:
    """Return the ``--input`` options of these inputs, and which sizes the user must fill in."""
    line = " ".join(f"--input {item.text}" for item in inferred)
    unsized = [item for item in inferred if not item.is_sized]
    if not unsized:
        return line
    rows = ["edges" if item.rows == _EDGES else "nodes" if item.rows else "batch" for item in unsized]
    behind = listed(list(dict.fromkeys(rows)))
    names = listed([item.name for item in unsized])
    return f"{line}, with the sizes of {names} behind the {behind} in place of `...`"


def options_to_complete(inferred: Sequence[InferredInput]) -> str:
    """Return the ``--input`` options of inputs that do not fit, ``...`` for sizes that no layer decides."""
    texts = []
    for item in inferred:
        spec = item.specs[0]
        sizes = [
            "B" if size is None else "..." if isinstance(size, (OpenLength, OpenSide, OpenWidth)) else str(size)
            for size in spec.shape
        ]
        texts.append(f"--input {spec.name}={','.join(sizes)}:{spec.dtype}")
    line = " ".join(texts)
    return f"{line}, with the right sizes in place of `...`" if "..." in line else line


def infer_inputs(model: Module, names: Iterable[str]) -> tuple[InferredInput, ...]:
    """Return what is known of these inputs of a model's ``forward``; of a dict or a tuple, of each member."""
    requested = list(names)
    if hasattr(model.forward, "schema"):  # compiled by TorchScript: nobody looks into it
        return tuple(InferredInput(name=name) for name in requested)
    with traced(model, requested) as trace:
        members = [
            member
            for name in requested
            for member in [item for item in trace.roots if item.split(".")[0] == name] or [name]
        ]
        inferred = [_of_readings(name, trace) for name in members]
        if GRAPH_EDGES in inspect.signature(model.forward).parameters:
            return tuple(_of_graph(item) for item in inferred)
        inferred = _with_masks(inferred)
        # The table of positions first: the axis of the batch shows only where its sizes fit.
        for _ in range(2):
            known = {item.name: item.specs[0] for item in inferred if item.specs and item.name in trace.roots}
            if not any(isinstance(size, OpenLength) for spec in known.values() for size in spec.shape):
                break
            length, before_batch = trace.sequences(known)
            if length is None and not before_batch:
                break
            inferred = [_settled(item, length, before_batch) for item in inferred]
    side = _image_side(model)
    return tuple(replace(item, specs=_with_side(item.specs, side)) for item in inferred)


def _of_readings(name: str, trace: InputTrace) -> InferredInput:
    last = name.rpartition(".")[2]
    read = trace.readings(name) if name in trace.roots else []
    if name in trace.flags:
        return InferredInput(name=name, dtype="bool", is_flag=True)
    named = [NAMED[last]] if last in NAMED else []
    if not (read or named):
        return InferredInput(name=name)
    # Of two that are as sure, the reader goes before the name; of those that agree on the type, the first that
    # decides a shape.
    surest = max((*read, *named), key=lambda taken: taken.strength)
    shown = next((item for item in (*named, *read) if item.shapes and item.dtype == surest.dtype), surest)
    values = [(value, value) for value in shown.values]
    specs = tuple(
        InputSpec(name=name, shape=shape, dtype=surest.dtype, values=value)
        for shape, value in zip_longest(shown.shapes, values[: len(shown.shapes)])
    )
    value = next(iter(shown.values), None) if not specs else None
    return InferredInput(name=name, dtype=surest.dtype, specs=specs, value=value)


def _with_masks(inferred: Sequence[InferredInput]) -> list[InferredInput]:
    """Return these inputs with masks and lengths as long as the first sequence among them."""
    rows = [
        [size for size in spec.shape if isinstance(size, OpenLength)][:1]
        for item in inferred
        for spec in item.specs
    ]
    lengths = list(dict.fromkeys(size for row in rows for size in row))
    result = []
    for item in inferred:
        is_lengths = any(spec.values and isinstance(spec.values[0], OpenLength) for spec in item.specs)
        is_mask = not item.specs and "mask" in item.name
        dtype = "bool" if item.dtype == "bool" else "int64"
        value = (1, 1) if item.value is None else (item.value, item.value)
        if lengths and (is_lengths or is_mask):
            item = replace(
                item,
                dtype="int64" if is_lengths else dtype,
                specs=tuple(
                    InputSpec(name=item.name, shape=(None,), dtype="int64", values=(length, length))
                    if is_lengths
                    else InputSpec(name=item.name, shape=(None, length), dtype=dtype, values=value)
                    for length in lengths
                ),
            )
        result.append(item)
    return result


def _settled(item: InferredInput, length: int | None, before_batch: bool) -> InferredInput:
    """Return an input with the length of a table of positions, or with its sequence before the batch."""

    def sized(spec: InputSpec) -> InputSpec:
        shape = tuple(length if length and isinstance(size, OpenLength) else size for size in spec.shape)
        values = spec.values
        if length and values and isinstance(values[0], OpenLength):
            values = (length, length)
        if before_batch and shape[:1] == (None,) and len(shape) > 1 and "mask" not in spec.name:
            shape = (shape[1], None, *shape[2:])
        return replace(spec, shape=shape, values=values)

    return replace(item, specs=tuple(dict.fromkeys(map(sized, item.specs))))


def _of_graph(item: InferredInput) -> InferredInput:
    """Return an input of a model of one graph, of usual size: no axis is a batch."""
    if item.name == GRAPH_EDGES:
        spec = InputSpec(name=item.name, shape=(2, _EDGES), dtype="int64", values=(0, _NODES - 1))
        return replace(item, dtype="int64", specs=(spec,))
    rows = _EDGES if "edge" in item.name else _NODES
    # Of a kind for each node one number, which an embedding reads.
    shape = min((spec.shape for spec in item.specs), key=len, default=None)
    specs = () if shape is None else (InputSpec(name=item.name, shape=(rows, *shape[1:]), dtype=item.dtype),)
    return replace(item, rows=rows, specs=specs)


def _image_side(model: Module) -> int | None:
    """Return the side of its images that a model has as an attribute."""
    for name in _SIDES:
        side = vars(model).get(name)
        side = side[0] if isinstance(side, (tuple, list)) and len(side) == 2 and side[0] == side[1] else side
        if isinstance(side, int) and not isinstance(side, bool) and 8 <= side <= 4096:
            return side
    return None


def _with_side(specs: tuple[InputSpec, ...], side: int | None) -> tuple[InputSpec, ...]:
    """Return these inputs, an image of this side first."""
    if side is None or not specs or specs[0].shape.count(IMAGE_SIDE) != 2:
        return specs
    shape = tuple(side if isinstance(size, OpenSide) else size for size in specs[0].shape)
    first = replace(specs[0], shape=shape)
    return (first, *(spec for spec in specs if spec != first))
