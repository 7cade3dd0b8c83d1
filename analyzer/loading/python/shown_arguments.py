"""What a file shows of its model's arguments: its own calls, and classes that parameters are annotated with.

The file's text is read for it and nothing of it is run. What comes out stands in hints; a call of which
everything is known stands for what nobody gives.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import enum
import inspect
import operator
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from analyzer.loading.model_reference import Argument, expression

OPEN = "..."  # for a value that nothing shows
_LONGEST = 200  # characters of a value that a hint shows
_DEEPEST = 4  # classes in one another
_FLAGS = {"store_true": "False", "store_false": "True"}
_PARSERS = ("parse_args", "parse_known_args")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_Enclosing = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCall:
    """A call of a class or function in the user's file, of which everything is known.

    Attributes:
        arguments: What it passes, by name.
        line: Where it stands.
    """

    arguments: tuple[Argument, ...]
    line: int


def own_call(module: ModuleType, builder: Callable[..., object]) -> OwnCall | None:
    """How the file itself calls a builder, where all is known that it passes and all calls pass the same."""
    tree = _tree(module)
    name = getattr(builder, "__name__", "")
    if tree is None or not name:
        return None
    defaults, parsed = _command_line_defaults(tree), _parsed_names(tree)
    positions = [
        item.name
        for item in _parameters(builder)
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
    ]
    found: OwnCall | None = None
    for call, scopes in _calls_of(tree, name, ()):
        known = _KnownNames(module, frozenset().union(*map(_locals, scopes)), parsed, defaults)
        arguments = _passed(call, positions, known)
        if arguments is None or (found is not None and {*arguments} != {*found.arguments}):
            return None
        found = found or OwnCall(arguments=arguments, line=call.lineno)
    return found


def _passed(call: ast.Call, positions: Sequence[str], known: _KnownNames) -> tuple[Argument, ...] | None:
    """What a call passes; None where a part of it is computed."""
    starred = any(isinstance(item, ast.Starred) for item in call.args)
    if starred or len(call.args) > len(positions) or any(item.arg is None for item in call.keywords):
        return None
    found = [
        known.argument(name, node) for name, node in [*zip(positions, call.args, strict=False), *_named(call)]
    ]
    return None if any(item is None for item in found) else tuple(item for item in found if item is not None)


def _calls_of(
    node: ast.AST, name: str, scopes: tuple[_Enclosing, ...]
) -> Iterator[tuple[ast.Call, tuple[_Enclosing, ...]]]:
    """Calls of this name, each with the functions that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and _called(child) == name:
            yield child, scopes
        yield from _calls_of(child, name, (*scopes, child) if isinstance(child, _Enclosing) else scopes)


def _locals(scope: _Enclosing) -> frozenset[str]:
    """The names that a function binds itself."""
    names = {item.arg for item in ast.walk(scope) if isinstance(item, ast.arg)}
    for item in ast.walk(scope):
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            names.add(item.id)
        elif isinstance(item, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in item.names}
        elif isinstance(item, (ast.FunctionDef, ast.ClassDef)) and item is not scope:
            names.add(item.name)
    return frozenset(names)


def _parsed_names(tree: ast.Module) -> frozenset[str]:
    """Variables that hold what argparse made of the command line."""
    makers = {
        item.name
        for item in tree.body
        if isinstance(item, ast.FunctionDef)
        and any(isinstance(call, ast.Call) and _called(call) in _PARSERS for call in ast.walk(item))
    }
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and target.elts:
                target = target.elts[0]
            if isinstance(target, ast.Name) and _called(node.value) in {*makers, *_PARSERS}:
                names.add(target.id)
    return frozenset(names)


class _KnownNames(ast.NodeTransformer):
    """Puts values in the place of names: the file's own variables, and defaults of its command line.

    Args:
        module: The executed file.
        local: Names that a function binds, which are not the file's.
        parsed: Variables that hold the parsed command line.
        defaults: Of the command line, by attribute.
    """

    def __init__(
        self,
        module: ModuleType,
        local: frozenset[str],
        parsed: frozenset[str],
        defaults: Mapping[str, ast.expr],
    ) -> None:
        self.variables = {name: value for name, value in vars(module).items() if name not in local}
        self.parsed = parsed
        self.defaults = defaults

    def argument(self, name: str, node: ast.expr) -> Argument | None:
        """The argument of this name; None where its value is computed."""
        filled = self.filled(node)
        if isinstance(filled, ast.Name):
            return Argument(name=name, literal="", word=filled.id) if filled.id in self.variables else None
        try:
            text = expression(ast.unparse(filled))
        except (ValueError, SyntaxError, RecursionError):
            return None
        calls = [item for item in ast.walk(ast.parse(text)) if isinstance(item, ast.Call)]
        if len(text) > _LONGEST or any(_called(item) not in self.variables for item in calls):
            return None
        return Argument(name=name, literal=text, calls=bool(calls))

    def filled(self, node: ast.expr) -> ast.expr:
        """The expression with values for the names that are known."""
        filled: ast.expr = self.visit(copy.deepcopy(node))  # the tree is looked at again
        return filled

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return _literal_node(self.variables[node.id], node) if node.id in self.variables else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self.variables:
            value = inspect.getattr_static(self.variables[node.value.id], node.attr, node)
            return node if value is node else _literal_node(value, node)
        if isinstance(node.value, ast.Name) and node.value.id in self.parsed:
            return self.defaults.get(node.attr, node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(item) for item in node.args]
        node.keywords = [self.visit(item) for item in node.keywords]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        left, right = self.visit(node.left), self.visit(node.right)
        function = _ARITHMETIC.get(type(node.op))
        if function and all(isinstance(item, ast.Constant) for item in (left, right)):
            values = (left.value, right.value)
            if all(isinstance(value, (int, float)) for value in values):
                with suppress(ArithmeticError):
                    return ast.Constant(function(*values))
        return node


def _literal_node(value: object, otherwise: ast.expr) -> ast.expr:
    """A value as Python writes it; the expression itself where it is no literal."""
    if isinstance(value, (bool, int, float, str, tuple, list, type(None))):
        with suppress(ValueError, SyntaxError, RecursionError):
            text = repr(value)
            ast.literal_eval(text)
            return ast.parse(text, mode="eval").body
    return otherwise


def shown_arguments(module: ModuleType, builder: Callable[..., object]) -> tuple[dict[str, str], int]:
    """Values by parameter as the file's own call of the builder has them, and the line of that call.

    A number or text that the call takes from the command line is its default there. Of several calls that which
    tells most counts; without one the line is 0.
    """
    tree = _tree(module)
    name = getattr(builder, "__name__", "")
    if tree is None or not name:
        return {}, 0
    defaults = _command_line_defaults(tree)
    positions = [
        item.name
        for item in _parameters(builder)
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
    ]
    best: dict[str, str] = {}
    line = 0
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or _called(call) != name:
            continue
        found = {}
        for parameter, node in [*zip(positions, call.args, strict=False), *_named(call)]:
            if isinstance(node, ast.Starred):
                break  # what follows it has no position that is known
            value = _shown(node, defaults, module)
            if value is not None:
                found[parameter] = value
        if len(found) > len(best):
            best, line = found, call.lineno
    return best, line


def built_by_annotation(
    module: ModuleType, builder: Callable[..., object], parameter: str, depth: int = 0
) -> str | None:
    """A call of the file's class that a parameter is annotated with, and what that needs; None without one."""
    kind = _own_class(annotations_of(builder).get(parameter), module)
    if kind is None or depth == _DEEPEST:
        return None
    needed = [
        f"{item.name}={built_by_annotation(module, kind, item.name, depth + 1) or OPEN}"
        for item in _parameters(kind)
        if item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
    ]
    return f"{kind.__name__}({', '.join(needed)})"


def annotations_of(builder: Callable[..., object]) -> Mapping[str, Any]:
    """The types of its parameters; empty where they name what is not there."""
    try:
        if isinstance(builder, type) and not dataclasses.is_dataclass(builder):
            return typing.get_type_hints(builder.__init__)  # type: ignore[misc]  # of a class, not of an object
        return typing.get_type_hints(builder)
    except Exception:  # whatever a user's annotation evaluates to
        return {}


def dataclass_in(annotation: object) -> type | None:
    """The one dataclass that an annotation names, ``X | None`` too."""
    named = (annotation, *typing.get_args(annotation))
    kinds = {item for item in named if isinstance(item, type) and dataclasses.is_dataclass(item)}
    return kinds.pop() if len(kinds) == 1 and typing.get_origin(annotation) not in (list, tuple, dict) else None


def _own_class(annotation: object, module: ModuleType) -> type | None:
    """The class by its name in the file: a dataclass, or one that the file defines."""
    found = dataclass_in(annotation) or annotation
    if not isinstance(found, type) or issubclass(found, enum.Enum):
        return None
    kind: type = found
    known = vars(module).get(kind.__name__) is kind
    return kind if known and (dataclasses.is_dataclass(kind) or kind.__module__ == module.__name__) else None


def _parameters(builder: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(builder).parameters.values())
    except (TypeError, ValueError):
        return []


def _tree(module: ModuleType) -> ast.Module | None:
    try:
        return ast.parse(Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _named(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    return ((item.arg, item.value) for item in call.keywords if item.arg is not None)


def _shown(node: ast.expr, defaults: Mapping[str, ast.expr], module: ModuleType) -> str | None:
    """The value as ``--arg`` takes it; None where it is computed."""
    if isinstance(node, ast.Name):
        return None  # one of the file's own is told by its name anyway, and a local one says nothing
    try:
        text = expression(ast.unparse(_Filled(defaults).visit(ast.parse(ast.unparse(node), mode="eval"))))
    except (ValueError, SyntaxError, RecursionError):
        return None
    called = (_called(item) for item in ast.walk(ast.parse(text)) if isinstance(item, ast.Call))
    return text if len(text) <= _LONGEST and all(name in vars(module) for name in called) else None


class _Filled(ast.NodeTransformer):
    """Puts the default of the command line in the place of ``args.hidden``."""

    def __init__(self, defaults: Mapping[str, ast.expr]) -> None:
        self.defaults = defaults

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.defaults.get(node.attr, node) if isinstance(node.value, ast.Name) else node


def _command_line_defaults(tree: ast.Module) -> dict[str, ast.expr]:
    """Defaults of the options that the file declares with argparse, by the attribute that holds them."""
    defaults: dict[str, ast.expr] = {}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or _called(call) != "add_argument":
            continue
        named = dict(_named(call))
        flags = [
            item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)
        ]
        long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
        destination = named.get("dest")
        name = (
            destination.value if isinstance(destination, ast.Constant) else long.lstrip("-").replace("-", "_")
        )
        action = named.get("action")
        flag = _FLAGS.get(str(action.value)) if isinstance(action, ast.Constant) else None
        value = named.get("default") or (ast.parse(flag, mode="eval").body if flag else None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and "type" in named:
            continue  # argparse makes another type of the text
        if value is not None:
            defaults.setdefault(str(name), value)
    return defaults
