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
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.layer_inputs import Taken, arguments_taken_by
from analyzer.loading.python.named_inputs import NAMED
from analyzer.loading.python.tensor_functions import (
    ARITHMETIC,
    AXIS_MOVES,
    CASTS,
    COMPARED,
    ELEMENTS,
    FLOAT_ELEMENTS,
    FLOAT_FUNCTIONS,
    INDEX,
    INDEXED,
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

    ``several`` is whether it is a tuple or a list that stands in the source.
    """

    aliases: frozenset[_Alias] = frozenset()
    floats: bool = False
    module: Module | None = None
    several: bool = False

    def joined(self, other: _Value) -> _Value:
        floats, several = self.floats or other.floats, self.several or other.several
        return _Value(self.aliases | other.aliases, floats, self.module or other.module, several)

    def moved(self) -> _Value:
        """With another shape, of which nothing is known."""
        return replace(self, aliases=frozenset(replace(item, moves=None) for item in self.aliases))

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
    """

    name: str
    dtype: str = "float32"
    specs: tuple[InputSpec, ...] = ()

    @property
    def text(self) -> str:
        """As ``--input`` takes it, with ``...`` for sizes that are not told."""
        return self.specs[0].text if self.specs else f"{self.name}=B,...:{self.dtype}"


def options_to_give(told: Sequence[ToldInput]) -> str:
    """The ``--input`` options of these inputs, and which sizes the user must fill in."""
    line = " ".join(f"--input {item.text}" for item in told)
    open_names = [item.name for item in told if not item.specs]
    if not open_names:
        return line
    return f"{line}, with the sizes of {listed_words(open_names)} behind the batch in place of `...`"


def told_inputs(model: Module, names: Iterable[str]) -> tuple[ToldInput, ...]:
    """What a model's source tells of these inputs of its ``forward``."""
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
    return tuple(_told(name, found[name]) for name in listed)


def _told(name: str, found: Sequence[Taken]) -> ToldInput:
    named = [NAMED[name]] if name in NAMED else []
    if not (found or named):
        return ToldInput(name=name)
    # Of two that are as sure, the reader goes before the name.
    surest = max((*found, *named), key=lambda taken: taken.strength)
    # Of several that agree on the type, the first that tells a shape; the name knows values too.
    shown = next((taken for taken in (*named, *found) if taken.shapes and taken.dtype == surest.dtype), surest)
    specs = tuple(
        InputSpec(name=name, shape=shape, dtype=surest.dtype, values=None if value is None else (value, value))
        for shape, value in zip_longest(shown.shapes, shown.values)
    )
    return ToldInput(name=name, dtype=surest.dtype, specs=specs)


def _before(taken: Taken, moves: tuple[AxisMove, ...] | None) -> Taken:
    """What an input must be whose axes are moved before it is read."""
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
            self.definitions[key] = _definition(function)
        definition = self.definitions[key]
        if definition is None:
            return _NOTHING
        parameters = [*definition.args.posonlyargs, *definition.args.args]
        names: _Names = dict(zip((item.arg for item in parameters), args, strict=False))
        names |= keywords
        body = _FunctionBody(self, names, getattr(inspect.unwrap(function), "__globals__", {}))
        self.depth += 1
        body.statements(definition.body)
        self.depth -= 1
        return body.returned

    def read(self, value: _Value, taken: Taken) -> None:
        """Notes that a reader takes this value so."""
        for alias in value.aliases:
            noted = _before(taken, alias.moves)
            # What is cast first may have any type; the reader's is as good as another.
            self.found[alias.name].append(replace(noted, strength=0) if alias.cast else noted)

    def named(
        self, forward: FunctionType, args: Sequence[_Value], keywords: Mapping[str, _Value]
    ) -> tuple[Sequence[_Value], Mapping[str, _Value]]:
        """Reads what a model of transformers takes by a standard name; the arguments without these."""
        names = list(inspect.signature(forward).parameters)[1:]  # without self
        by_name = {**dict(zip(names, args, strict=False)), **keywords}
        for name in NAMED.keys() & by_name.keys():
            self.read(by_name[name], NAMED[name])
        left = [_NOTHING if name in NAMED else value for name, value in zip(names, args, strict=False)]
        return left, {name: _NOTHING if name in NAMED else value for name, value in keywords.items()}

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
            if name in taken and (value.several or not is_pair):
                self.read(value, taken[name])
        if isinstance(module, (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout)):
            return args[0] if args else _NOTHING
        if kind == "torch.nn.modules.activation" and not taken and args:
            self.read(args[0], ARITHMETIC)
            return args[0]
        return _FLOATS


@dataclass(slots=True)
class _FunctionBody:
    """The statements of one function, with what its names hold."""

    reader: _SourceReader
    names: _Names
    globals: Mapping[str, object]
    returned: _Value = field(default=_NOTHING)

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
                self.returned = self.returned.joined(self.value(value))
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
                held = [self.value(value).moved()] * len(target.elts)
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
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]), ast.Tuple(
                elts=[_, ast.Name() as name]
            ):
                self.bind_loop(name, inner)
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
                return replace(reduce(_Value.joined, parts, _NOTHING), module=None, several=True)
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
            read(operand(*MASKED[name]), MASK)
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
        move = _axis_move(name, node.args if is_method else node.args[1:])
        if move is not None and not keywords:
            return first.with_axes(move)
        return first.moved() if name in MOVED else _NOTHING


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


def _definition(function: Callable[..., object]) -> ast.FunctionDef | None:
    """The syntax tree of a function; None where its source is not there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None
    first = tree.body[0] if tree.body else None
    return first if isinstance(first, ast.FunctionDef) else None
