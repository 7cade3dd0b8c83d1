"""What the layers that read a model's inputs take, by a partial ``torch.fx`` trace of its ``forward``.

PyTorch's own layers are leaves, a user's modules are traced into. A trace that ends part way, as at control
flow that depends on values, has recorded what comes before. Between an input and its reader the recorded
functions run on tensors without data whose sizes are primes: a prime that arrives shows which axis it was.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from analyzer.loading.python.input_spec import GRAPH_EDGES, InputSpec
from analyzer.loading.python.layer_inputs import (
    INDEX,
    INDICES,
    LENGTH,
    LENGTHS,
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
    "embedding": (0, "input", INDICES),
    "embedding_bag": (0, "input", INDICES),
    "one_hot": (0, "tensor", INDICES),
    "gather": (2, "index", INDEX),
    "index_select": (2, "index", INDEX),
    "index_add": (2, "index", INDEX),
    "scatter": (2, "index", INDEX),
    "scatter_add": (2, "index", INDEX),
    "pack_padded_sequence": (1, "lengths", LENGTHS),
    "invert": (0, "input", _MASK),
    "masked_fill": (1, "mask", _FILLED),
    "masked_fill_": (1, "mask", _FILLED),
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
        given = [*(_PRIMES[:rank] for rank in range(1, len(_PRIMES) + 1)), *self._stated_shapes()]
        for sizes in given:
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
        """Return the value of a node on which no input has a say.

        Raises:
            LookupError: An input has.
        """
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

    def _stated_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes to which something is brought, of all sizes but the batch."""
        result: dict[tuple[int, ...], None] = {}
        for node in self.graph.nodes:
            if _name(node) in ("reshape", "view"):
                sizes = _operands(node)[1:]
                sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
                if len(sizes) > 1 and all(isinstance(size, int) and size > 0 for size in sizes[1:]):
                    result[_BATCH, *sizes[1:]] = None
        return list(result)


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
    """Whether a node's result follows from values of one of these, not from its size alone."""
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

    Args:
        model: The model.
        names: Inputs that are traced in addition to those without a default.
        decisions: Whether the first conditions hold; further ones do not.
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
