"""What the source of ``forward`` reads each of its inputs with, and the types and shapes that follow.

Nothing is executed: the syntax tree is followed through simple assignments, arithmetic, calls of layers, of the
model's own modules and methods and of plain functions. What is not understood tells nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from types import FunctionType
from typing import TYPE_CHECKING

from analyzer.loading.python.axis_moves import AxisMove, before_moves
from analyzer.loading.python.documented_shapes import Dimensions, documented_shapes, image_side
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.layer_inputs import (
    IMAGE_SIDE,
    LENGTHS,
    TOKENS,
    OpenSide,
    Taken,
    TriedSizes,
    arguments_taken_by,
    with_side,
)
from analyzer.loading.python.named_inputs import (
    LENGTHS_NAME,
    NAMED,
    NAMED_IN_TRANSFORMERS,
    SHORT_STEP_NAMES,
    STEP_NAMES,
    STEPS,
)
from analyzer.loading.python.tensor_functions import (
    ARITHMETIC,
    AXIS_MOVES,
    CASTS,
    COMPARED,
    CONCATENATIONS,
    ELEMENTS,
    FILLED,
    FLOAT_ELEMENTS,
    FLOAT_FUNCTIONS,
    INDEX,
    INDEXED,
    LIKE,
    MASK,
    MASKED,
    MOVED,
    SAME,
)
from analyzer.text import listed as listed_words

if TYPE_CHECKING:
    from torch.nn import Module

_DTYPE_NAMED = re.compile(r"\b(dtype|float\d*|double|half|bfloat16|u?int\d*|long|bool)\b")
# Far above any model's depth and size: for code that calls itself.
_DEEPEST, _MOST_CALLS = 12, 400
# Of a usual graph: nodes, edges, and graphs in one.
NODES, EDGES, _GRAPHS = 100, 400, 4
# PyTorch Geometric's name of the pairs of nodes that are joined.
GRAPH_EDGES = "edge_index"
# By PyTorch Geometric's names, shape and values.
_GRAPH_INPUTS: Mapping[str, tuple[TriedSizes, tuple[int, int] | None]] = {
    GRAPH_EDGES: ((2, EDGES), (0, NODES - 1)),
    "batch": ((NODES,), (0, _GRAPHS - 1)),
    "pos": ((NODES, 3), None),
    "edge_weight": ((EDGES,), None),
}
# A name in the singular: one for each example.
_OF_ONE = re.compile(r"(?:^|_)(?:id|idx|index)$")


@dataclass(frozen=True, slots=True)
class _Alias:
    """An input under another name, perhaps with its axes moved or another type (``cast``).

    ``moves`` are those of its axes, in order; None where its shape is another.
    """

    name: str
    moves: tuple[AxisMove, ...] | None = ()
    cast: bool = False


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of an expression: inputs that it holds, whether it is floats, the module that it is.

    ``several`` is whether it is a tuple or a list that stands in the source, of these ``parts``; ``width`` its
    last axis, ``beside`` what of that is no input but stands beside one.
    """

    aliases: frozenset[_Alias] = frozenset()
    floats: bool = False
    module: Module | None = None
    several: bool = False
    parts: tuple[_Value, ...] = ()
    width: int | None = None
    beside: int | None = None

    def joined(self, other: _Value) -> _Value:
        floats, several = self.floats or other.floats, self.several or other.several
        width = self.width if self.width == other.width else None
        return _Value(self.aliases | other.aliases, floats, self.module or other.module, several, width=width)

    def moved(self) -> _Value:
        """With another shape, of which nothing is known."""
        return replace(
            self, width=None, beside=None, aliases=frozenset(replace(item, moves=None) for item in self.aliases)
        )

    def with_axes(self, move: AxisMove) -> _Value:
        return replace(
            self,
            aliases=frozenset(
                item if item.moves is None else replace(item, moves=(*item.moves, move))
                for item in self.aliases
            ),
        )

    def cast(self) -> _Value:
        return _Value(frozenset(replace(item, cast=True) for item in self.aliases))


_NOTHING = _Value()
_FLOATS = _Value(floats=True)
_Names = dict[str, _Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldInput:
    """What the source tells of one input.

    Attributes:
        name: Of the input.
        dtype: Its type; ``float32`` where nothing tells it.
        specs: What to try, most usual first; empty where the shape is not told.
        is_read: Whether something in the source reads it.
        value: Of all its elements, where its readers say it of a mask whose shape they leave open.
        rows: Of a graph, how many nodes or edges it has; None of anything else.
        is_of_edges: Whether the rows are edges.
    """

    name: str
    dtype: str = "float32"
    specs: tuple[InputSpec, ...] = ()
    is_read: bool = False
    value: int | None = None
    rows: int | None = None
    is_of_edges: bool = False

    @property
    def of_graph(self) -> bool:
        """Whether it is of the nodes or edges of a graph."""
        return self.rows is not None

    @property
    def text(self) -> str:
        """As ``--input`` takes it, with ``...`` for sizes that are not told."""
        first = "B" if self.rows is None else self.rows
        return self.specs[0].text if self.specs else f"{self.name}={first},...:{self.dtype}"


def options_to_give(told: Sequence[ToldInput]) -> str:
    """The ``--input`` options of these inputs, and which sizes the user must fill in."""
    line = " ".join(f"--input {item.text}" for item in told)
    unsized = [item for item in told if not item.specs]
    if not unsized:
        return line
    open_names = [item.name for item in unsized]
    rows = ["edges" if item.is_of_edges else "nodes" for item in unsized]
    behind = f"the {' and '.join(dict.fromkeys(rows))}" if is_graph(told) else "the batch"
    return f"{line}, with the sizes of {listed_words(open_names)} behind {behind} in place of `...`"


def told_inputs(model: Module, names: Iterable[str]) -> tuple[ToldInput, ...]:
    """What a model's source tells of these inputs of its ``forward``; of a dict, of each key that is read."""
    listed = list(names)
    found: dict[str, list[Taken]] = {name: [] for name in listed}
    values = {name: _Value(frozenset({_Alias(name)})) for name in listed}
    reader = _SourceReader(found)
    forward = model.forward
    with suppress(RecursionError):  # an expression of a thousand terms: what was read before it holds
        if inspect.ismethod(forward):
            reader.call(forward.__func__, (_Value(module=model),), values)
        else:
            reader.call(forward, (), values)
    told_names = [
        member
        for name in listed
        for member in ([item for item in found if item.startswith(f"{name}.")] or [name])
    ]
    documented = documented_shapes(model, told_names)
    side = image_side(model)
    graph = GRAPH_EDGES in inspect.signature(forward).parameters or any(
        shape[:1] == (2,) and shape[1:] == ("edges",) for shape in documented.values()
    )
    return tuple(
        _of_graph(name, found[name], documented.get(name))
        if graph
        else _told(name, found[name], documented.get(name), side)
        for name in told_names
    )


def is_graph(told: Sequence[ToldInput]) -> bool:
    """Whether these inputs are nodes and edges, of which nobody knows how many there are."""
    return any(item.of_graph for item in told)


def _told(
    name: str, found: Sequence[Taken], documented: Dimensions | None = None, side: int | None = None
) -> ToldInput:
    last = name.rpartition(".")[2]
    named = [NAMED[last]] if last in NAMED else []
    weak = all(taken.strength < STEPS.strength for taken in found)
    if weak and (last in STEP_NAMES or (found and last in SHORT_STEP_NAMES)):
        named = [STEPS]
    elif weak and LENGTHS_NAME.search(last):
        named = [LENGTHS]
    if not (found or named):
        shapes = _documented((), documented)
        return ToldInput(name=name, specs=tuple(InputSpec(name=name, shape=shape) for shape in shapes))
    # Of two that are as sure, the reader goes before the name.
    surest = max((*found, *named), key=lambda taken: taken.strength)
    # Of several that agree on the type, the first that tells a shape; the name knows values too.
    shown = next((taken for taken in (*named, *found) if taken.shapes and taken.dtype == surest.dtype), surest)
    shapes = with_side(shown.shapes, side)
    if last in (*STEP_NAMES, *SHORT_STEP_NAMES) or _OF_ONE.search(last):
        shapes = (*(shape for shape in shapes if shape == (None,)), *(s for s in shapes if s != (None,)))
    told_shapes = _documented(shapes, documented)
    values: list[tuple[int, int] | None] = [(value, value) for value in shown.values]
    if told_shapes != shapes and values:
        values = [values[0], *values]
    if not values and "." in name:  # a whole line is written: with the rows that there are
        rows = next((taken.rows for taken in found if taken.rows is not None), None)
        values = [rows] * len(told_shapes)
    specs = tuple(
        InputSpec(name=name, shape=shape, dtype=surest.dtype, values=value)
        for shape, value in zip_longest(told_shapes, values[: len(told_shapes)])
    )
    value = next(iter(shown.values), None) if not told_shapes else None
    return ToldInput(name=name, dtype=surest.dtype, specs=specs, is_read=bool(found), value=value)


def _documented(shapes: tuple[TriedSizes, ...], documented: Dimensions | None) -> tuple[TriedSizes, ...]:
    """These shapes, that of the docstring first; what the words leave open is the reader's."""
    if documented is None:
        return shapes
    alike = [shape for shape in shapes if len(shape) == len(documented)]
    if shapes and not alike:  # words and layers contradict each other
        return shapes
    usual = {"batch": None, "steps": TOKENS[0], "side": IMAGE_SIDE}
    sizes: list[int | None] = []
    for axis, item in enumerate(documented):
        of_layers = {shape[axis] for shape in alike}
        size = next(iter(of_layers)) if len(of_layers) == 1 else None
        if isinstance(item, int):
            if size is not None and not isinstance(size, OpenSide) and size not in (item, *TOKENS):
                return shapes
            sizes.append(item)
        elif item == "batch":
            sizes.append(None)
        elif (
            item == "steps" and alike and isinstance(alike[0][axis], OpenSide)
        ):  # planes of steps and features are no images
            sizes.append(usual[item])
        elif alike:
            sizes.append(alike[0][axis])
        elif item in usual:
            sizes.append(usual[item])
        else:
            return shapes
    first = tuple(sizes)
    return (first, *(shape for shape in shapes if shape != first))


def _of_graph(name: str, found: Sequence[Taken], documented: Dimensions | None) -> ToldInput:
    """An input of a model of graphs: sizes are numbers of nodes and of edges, and no axis is a batch."""
    surest = max(found, key=lambda taken: taken.strength, default=None)
    dtype = surest.dtype if surest is not None else "float32"
    if name in _GRAPH_INPUTS:
        shape, values = _GRAPH_INPUTS[name]
        whole = values is not None or (surest is not None and dtype == "int64")
        spec = InputSpec(name=name, shape=shape, dtype="int64" if whole else "float32", values=values)
        return replace(_rows_of(name, bool(found)), dtype=spec.dtype, specs=(spec,))
    rows = next((taken.rows for taken in found if taken.rows is not None), None)
    told = replace(_rows_of(name, bool(found)), dtype=dtype)
    behind: tuple[int | None, ...] | None = next(
        (taken.shapes[0][1:] for taken in found if taken.shapes and taken.dtype == dtype), None
    )
    if rows is not None:  # a number each, of a kind or a type
        behind = ()
    if documented is not None and (
        len(documented) == 1
        or documented[1:] == tuple(item for item in documented[1:] if isinstance(item, int))
    ):
        told = replace(told, rows=EDGES, is_of_edges=True) if documented[0] == "edges" else told
        behind = tuple(item for item in documented[1:] if isinstance(item, int))
    if behind is None:
        return told
    spec = InputSpec(name=name, shape=(told.rows, *behind), dtype=dtype, values=rows)
    return replace(told, specs=(spec,))


def _rows_of(name: str, read: bool) -> ToldInput:
    """An input of a graph, of which but the name is known."""
    is_of_edges = "edge" in name
    return ToldInput(name=name, is_read=read, rows=EDGES if is_of_edges else NODES, is_of_edges=is_of_edges)


def _before(taken: Taken, moves: tuple[AxisMove, ...] | None) -> Taken:
    """What an input must be whose axes are moved before it is read."""
    if not taken.shapes:
        return taken
    if not moves:
        return taken if moves is not None else replace(taken, shapes=(), values=())
    pairs = [(before_moves(shape, moves), value) for shape, value in zip_longest(taken.shapes, taken.values)]
    kept = [(shape, value) for shape, value in pairs if shape is not None]
    values = tuple(value for _, value in kept if value is not None)
    return replace(taken, shapes=tuple(shape for shape, _ in kept), values=values)


@dataclass(slots=True)
class _SourceReader:
    found: dict[str, list[Taken]]
    calls: int = 0
    depth: int = 0
    definitions: dict[int, ast.FunctionDef | None] = field(default_factory=dict)

    def call(
        self, function: Callable[..., object], args: Sequence[_Value], keywords: Mapping[str, _Value]
    ) -> _Value:
        """Reads a function's source with these arguments; what it returns."""
        self.calls += 1
        if self.depth >= _DEEPEST or self.calls > _MOST_CALLS:
            return _NOTHING
        key = id(function)  # what a class calls forward need not be hashable
        if key not in self.definitions:
            self.definitions[key] = definition_of(function)
        definition = self.definitions[key]
        if definition is None:
            return _NOTHING
        parameters = [*definition.args.posonlyargs, *definition.args.args]
        names: _Names = dict(zip((item.arg for item in parameters), args, strict=False))
        names |= keywords
        body = _FunctionBody(self, names, getattr(inspect.unwrap(function), "__globals__", {}))
        if definition.args.kwarg is not None:
            own = {item.arg for item in (*parameters, *definition.args.kwonlyargs)}
            body.handed_on = {name: value for name, value in keywords.items() if name not in own}
            body.handed_on_as = definition.args.kwarg.arg
        self.depth += 1
        body.statements(definition.body)
        self.depth -= 1
        return body.returned

    def read(self, value: _Value, taken: Taken) -> None:
        """Notes that a reader takes this value so."""
        for alias in value.aliases:
            noted = _before(taken, alias.moves)
            # What is cast first may have any type; the reader's is as good as another.
            found = self.found.setdefault(alias.name, [])
            found.append(replace(noted, strength=0) if alias.cast else noted)

    def member(self, owner: _Value, key: str) -> _Value:
        """What an input that is a dict holds under a key: an input itself, ``batch.user_id``."""
        members = [f"{alias.name}.{key}" for alias in owner.aliases if alias.moves == () and not alias.cast]
        for name in members:
            self.found.setdefault(name, [])
        return _Value(frozenset(map(_Alias, members)))

    def concatenated(self, value: _Value, taken: Taken) -> None:
        """Notes the width of an input that is read with others beside it: what they leave of the reader's."""
        width = taken.shapes[0][-1] if taken.shapes else None
        if value.beside is not None and width is not None and width > value.beside:
            self.read(value.parts[0], Taken(dtype=taken.dtype, shapes=((None, width - value.beside),)))

    def named(
        self, forward: FunctionType, args: Sequence[_Value], keywords: Mapping[str, _Value]
    ) -> tuple[Sequence[_Value], Mapping[str, _Value]]:
        """Reads what a model of transformers takes by a standard name; the arguments without these."""
        names = list(inspect.signature(forward).parameters)[1:]  # without self
        by_name = {**dict(zip(names, args, strict=False)), **keywords}
        known = NAMED_IN_TRANSFORMERS
        for name in known.keys() & by_name.keys():
            self.read(by_name[name], known[name])
        left = [_NOTHING if name in known else value for name, value in zip(names, args, strict=False)]
        return left, {name: _NOTHING if name in known else value for name, value in keywords.items()}

    def module(self, module: Module, args: Sequence[_Value], keywords: Mapping[str, _Value]) -> _Value:
        """Reads what a module does with these arguments; what it returns."""
        from torch import nn

        if isinstance(module, nn.Sequential):
            value = args[0] if args else _NOTHING
            for child in _children(module).values():
                value = self.module(child, (value,), {})
            return value
        forward = inspect.getattr_static(type(module), "forward", None)
        if not isinstance(forward, FunctionType):
            return _NOTHING
        kind = forward.__module__  # not the class's: a child of a layer that leaves its forward is that layer
        if kind.startswith("transformers."):
            args, keywords = self.named(forward, args, keywords)
        if not kind.startswith("torch."):
            return self.call(forward, (_Value(module=module), *args), keywords)
        taken = arguments_taken_by(module)
        by_name = {**dict(zip(taken, args, strict=False)), **keywords}
        for name, value in by_name.items():
            # The two states of an LSTM: under one name they are a tuple, which no tensor can be.
            is_pair = name == "hx" and isinstance(module, (nn.LSTM, nn.LSTMCell))
            if name in taken and value.beside is not None:
                self.concatenated(value, taken[name])
            elif name in taken and (value.several or not is_pair):
                self.read(value, taken[name])
        if isinstance(module, (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout)):
            return args[0] if args else _NOTHING
        if kind == "torch.nn.modules.activation" and not taken and args:
            self.read(args[0], ARITHMETIC)
            return args[0]
        return replace(_FLOATS, width=_width_given_by(module))


def _width_given_by(module: Module) -> int | None:
    """The last axis of what a layer gives, where that is its own."""
    from torch import nn

    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return module.embedding_dim
    return module.out_features if isinstance(module, nn.Linear) else None


@dataclass(slots=True)
class _FunctionBody:
    """The statements of one function, with what its names hold."""

    reader: _SourceReader
    names: _Names
    globals: Mapping[str, object]
    returned: _Value = field(default=_NOTHING)
    # What `**kwargs` holds, and what it is called.
    handed_on: Mapping[str, _Value] = field(default_factory=dict)
    handed_on_as: str = ""

    def statements(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, value)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                left = ast.Name(id=name, ctx=ast.Load())
                self.names[name] = self.value(ast.BinOp(left=left, op=op, right=value))
            case ast.Return(value=ast.expr() as value):
                found = self.value(value)
                self.returned = found if self.returned == _NOTHING else self.returned.joined(found)
            case ast.If(test=test, body=body, orelse=orelse):
                self.value(test)
                before = dict(self.names)
                self.statements(body)
                after, self.names = self.names, before
                self.statements(orelse)
                for name, held in after.items():
                    self.names[name] = self.names.get(name, _NOTHING).joined(held)
            case ast.For(target=target, iter=source, body=body):
                self.bind_loop(target, source)
                self.statements(body)
            case ast.With(body=body) | ast.While(body=body) | ast.Try(body=body):
                self.statements(body)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if len(parts) == len(target.elts):
                held = [self.value(part) for part in parts]
            else:
                found = self.value(value)
                held = [part.moved() for part in found.parts]
                if len(held) != len(target.elts):  # no tuple that a function returns as such
                    held = [found.moved()] * len(target.elts)
            for name, one in zip(target.elts, held, strict=True):
                if isinstance(name, ast.Name):
                    self.names[name.id] = one
        else:
            found = self.value(value)
            if isinstance(target, ast.Name):
                self.names[target.id] = found

    def bind_loop(self, target: ast.expr, source: ast.expr) -> None:
        """A loop over modules is read for the first of them, which is what the inputs meet."""
        match source, target:
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]), ast.Tuple(elts=[_, name]):
                self.bind_loop(name, inner)
            case ast.Call(func=ast.Name(id="zip"), args=sources), ast.Tuple(elts=names) if len(names) == len(
                sources
            ):
                for name, one in zip(names, sources, strict=True):
                    self.bind_loop(name, one)
            case _, ast.Name(id=name_id):
                value = self.value(source)
                first = None if value.module is None else next(iter(_children(value.module).values()), None)
                self.names[name_id] = _Value(value.moved().aliases, value.floats, first)
            case _:
                self.value(source)

    def value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Name(id=name):
                return self.names.get(name, _NOTHING)
            case ast.Constant(value=float()):
                return _FLOATS
            case ast.Attribute(value=inner, attr=attr):
                return self.attribute(self.value(inner), attr)
            case ast.Subscript(value=inner, slice=index):
                return self.subscript(self.value(inner), index)
            case ast.BinOp(left=left, op=op, right=right):
                return self.arithmetic(self.value(left), op, self.value(right))
            case ast.UnaryOp(op=op, operand=operand):
                value = self.value(operand)
                if isinstance(op, ast.Invert):
                    self.reader.read(value, MASK)
                return _NOTHING if isinstance(op, ast.Not) else value
            case ast.Call():
                return self.call(node)
            case _:
                return self.compound(node)

    def compound(self, node: ast.expr) -> _Value:
        """What holds other expressions, and may be one of them."""
        parts = [self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        match node:
            case ast.IfExp():
                return parts[1].joined(parts[2])
            case ast.Tuple() | ast.List():
                joined = reduce(_Value.joined, parts, _NOTHING)
                return replace(joined, module=None, several=True, parts=tuple(parts))
            case ast.Compare(ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant(value=int())]):
                self.reader.read(parts[0], COMPARED)
                return _NOTHING
            case ast.NamedExpr(target=ast.Name(id=name)):
                self.names[name] = parts[1]
                return parts[1]
            case _:
                return _NOTHING

    def attribute(self, owner: _Value, name: str) -> _Value:
        if owner.module is None:
            if name == "mT":
                return owner.with_axes(AxisMove("swap", (-2, -1)))
            return owner.moved() if name in ("T", "data") else _NOTHING
        module = _children(owner.module).get(name)
        if module is not None:
            return _Value(module=module)
        return _FLOATS if name in _float_tensors(owner.module) else _NOTHING

    def subscript(self, owner: _Value, index: ast.expr) -> _Value:
        if owner.module is not None:
            children = _children(owner.module)
            key = str(index.value) if isinstance(index, ast.Constant) else ""
            return _Value(module=children.get(key, next(iter(children.values()), None)))
        if isinstance(index, ast.Constant) and isinstance(index.value, str):  # batch["user_id"]
            return self.reader.member(owner, index.value)
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if all(map(_is_whole_or_new, parts)):  # x[:, None]
            for position in (place for place, part in enumerate(parts) if isinstance(part, ast.Constant)):
                owner = owner.with_axes(AxisMove("insert", (position,)))
            return owner
        for part in parts:
            if isinstance(part, ast.Slice):
                continue
            value = self.value(part)
            # x[mask] is no look-up, and both are written alike.
            rows = frozenset(alias for alias in value.aliases if "mask" not in alias.name)
            self.reader.read(_Value(rows), INDEX)
        return owner.moved()

    def arithmetic(self, left: _Value, op: ast.operator, right: _Value) -> _Value:
        if isinstance(op, ast.MatMult):
            self.reader.read(left.joined(right), ARITHMETIC)
            return _FLOATS
        if left.floats or right.floats:
            self.reader.read(left.joined(right), ARITHMETIC)
        return _Value(left.aliases | right.aliases, left.floats or right.floats)

    def call(self, node: ast.Call) -> _Value:
        args = [self.value(item.value if isinstance(item, ast.Starred) else item) for item in node.args]
        keywords = {item.arg: self.value(item.value) for item in node.keywords if item.arg is not None}
        if any(
            item.arg is None and isinstance(item.value, ast.Name) and item.value.id == self.handed_on_as
            for item in node.keywords
        ):
            keywords = {**self.handed_on, **keywords}
        match node.func:
            case ast.Attribute(value=owner, attr=name):
                held = self.value(owner)
                if held.module is not None:
                    return self.called_on_module(held.module, name, args, keywords)
                # A local value's method; else a function of torch, or of another module that is imported.
                is_method = not (isinstance(root := _root(owner), ast.Name) and root.id not in self.names)
                return self.function(name, [held, *args] if is_method else args, keywords, node, is_method)
            case ast.Name(id=name):
                module = self.names.get(name, _NOTHING).module
                if module is not None:
                    return self.reader.module(module, args, keywords)
                function = self.globals.get(name)
                if isinstance(function, FunctionType) and not function.__module__.startswith("torch."):
                    return self.reader.call(function, args, keywords)
                return self.function(name, args, keywords, node, is_method=False)
            case _:
                module = self.value(node.func).module
                return self.reader.module(module, args, keywords) if module is not None else _NOTHING

    def called_on_module(
        self, owner: Module, name: str, args: Sequence[_Value], keywords: Mapping[str, _Value]
    ) -> _Value:
        module = _children(owner).get(name)
        if module is not None:
            return self.reader.module(module, args, keywords)
        if name == "forward":
            return self.reader.module(owner, args, keywords)
        method = inspect.getattr_static(type(owner), name, None)
        if isinstance(method, staticmethod):
            return self.reader.call(method.__func__, args, keywords)
        if isinstance(method, FunctionType) and not method.__module__.startswith("torch."):
            return self.reader.call(method, (_Value(module=owner), *args), keywords)
        return _NOTHING

    def function(
        self,
        name: str,
        operands: Sequence[_Value],
        keywords: Mapping[str, _Value],
        node: ast.Call,
        is_method: bool,
    ) -> _Value:
        """A function of PyTorch or a tensor's method, known by its name alone."""
        read = self.reader.read
        first = operands[0] if operands else keywords.get("input", _NOTHING)

        def operand(position: int, keyword: str) -> _Value:
            return operands[position] if position < len(operands) else keywords.get(keyword, _NOTHING)

        if name in INDEXED:
            position, keyword, taken = INDEXED[name]
            read(operand(position, keyword), taken)
        if name in MASKED:
            read(operand(*MASKED[name]), FILLED if name.startswith("masked_fill") else MASK)
        if name == "where":
            read(operand(1 if is_method else 0, "condition"), MASK)
            others = [value for index, value in enumerate(operands) if index != (1 if is_method else 0)]
            return _Value(frozenset(alias for value in others for alias in value.moved().aliases))
        if name in FLOAT_FUNCTIONS or name in FLOAT_ELEMENTS:
            for value in operands:
                read(value, ARITHMETIC)
            return first if name in FLOAT_ELEMENTS else _FLOATS
        if name in CASTS or (name == "to" and _DTYPE_NAMED.search(_arguments_text(node))):
            return first.cast()
        if name in SAME or name in ELEMENTS:
            return first
        if name in LIKE:
            return first.cast() if "dtype" in keywords else first
        if name in CONCATENATIONS:
            return _concatenated(first, node)
        move = _axis_move(name, node.args if is_method else node.args[1:])
        if move is not None and not keywords:
            return first.with_axes(move)
        return first.moved() if name in MOVED else _NOTHING


def _concatenated(value: _Value, node: ast.Call) -> _Value:
    """Tensors one behind the other; in the last axis, an input beside others whose widths are known."""
    axis = next((item.value for item in node.keywords if item.arg in ("dim", "axis")), None)
    axis = node.args[1] if axis is None and len(node.args) > 1 else axis
    inputs = [part for part in value.parts if part.aliases]
    widths = [part.width for part in value.parts if not part.aliases]
    moved = value.moved()
    if axis is None or ast.unparse(axis) not in ("-1", "1") or None in widths:
        return moved
    beside = sum(width for width in widths if width is not None)
    if not inputs:
        return replace(_FLOATS, width=beside)
    # Of several inputs nobody knows how they share what is left.
    return replace(moved, parts=(inputs[0],), several=False, beside=beside) if len(inputs) == 1 else moved


def _children(module: Module) -> dict[str, Module]:
    from torch import nn

    return dict(nn.Module.named_children(module))  # no property and no override of the user's class


def _float_tensors(module: Module) -> set[str]:
    """Names of a module's own parameters and buffers of floats."""
    from torch import nn

    own = (*nn.Module.named_parameters(module, recurse=False), *nn.Module.named_buffers(module, recurse=False))
    return {name for name, tensor in own if tensor.is_floating_point()}


def _is_whole_or_new(part: ast.expr) -> bool:
    """Whether a subscript is ``:`` or ``None``."""
    if isinstance(part, ast.Slice):
        return part.lower is None and part.upper is None and part.step is None
    return isinstance(part, ast.Constant) and part.value is None


def _axis_move(name: str, operands: Sequence[ast.expr]) -> AxisMove | None:
    """What a function does to the axes of its tensor; None where the source does not say it in numbers."""
    try:
        values = [ast.literal_eval(item) for item in operands]
    except (ValueError, TypeError, RecursionError):
        return None
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = list(values[0])
    kind, count = AXIS_MOVES.get(name, (None, 0))
    if kind is None or not values or count not in (0, len(values)) or {*map(type, values)} != {int}:
        return None
    return AxisMove(kind, tuple(values))


def _arguments_text(node: ast.Call) -> str:
    return " ".join(ast.unparse(item) for item in (*node.args, *node.keywords))


def _root(node: ast.expr) -> ast.expr:
    """The first name of ``a.b.c``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def definition_of(function: Callable[..., object]) -> ast.FunctionDef | None:
    """The syntax tree of a function; None where its source is not there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None
    first = tree.body[0] if tree.body else None
    return first if isinstance(first, ast.FunctionDef) else None
