"""The file's own calls of a class: with what it builds its model, and its optimizer.

The file's text is read for it. A call stands for what nobody gives where all is known that it passes: literals,
the file's variables, and defaults of its command line.
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from analyzer.loading.model_reference import Argument, expression
from analyzer.loading.python.shown_arguments import (
    LONGEST,
    called_name,
    command_line_defaults,
    named_values,
    positional_names,
    signature_of,
    tree_of,
)

_PARSERS = ("parse_args", "parse_known_args")
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
# Options of optimizers that are but numbers in a formula: what is kept and computed does not depend on them.
_NUMBERS = frozenset({"lr", "weight_decay", "betas", "eps", "alpha", "rho"})
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
    tree = tree_of(module)
    name = getattr(builder, "__name__", "")
    if tree is None or not name:
        return None
    defaults, parsed = command_line_defaults(tree), _parsed_names(tree)
    positions = positional_names(builder)
    found: OwnCall | None = None
    for call, scopes in _calls_of(tree, name, ()):
        known = _KnownNames(module, frozenset().union(*map(_locals, scopes)), parsed, defaults)
        arguments = _passed(call, positions, known)
        if arguments is None or (found is not None and {*arguments} != {*found.arguments}):
            return None
        found = found or OwnCall(arguments=arguments, line=call.lineno)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOptimizer:
    """A call of an optimizer of ``torch.optim`` in the user's file.

    Attributes:
        kind: Its name there.
        options: What it passes by name, as far as it is known.
        unknown: Names of what it computes.
        line: Where it stands.
    """

    kind: str
    options: Mapping[str, Any]
    unknown: tuple[str, ...]
    line: int

    @property
    def written(self) -> str:
        """As a call."""
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def own_optimizer(module: ModuleType) -> OwnOptimizer | None:
    """The optimizer that the file builds in its functions.

    None where there is none, where calls differ, and where more is computed than numbers of its formula.
    """
    tree = tree_of(module)
    if tree is None:
        return None
    defaults, parsed = command_line_defaults(tree), _parsed_names(tree)
    found: OwnOptimizer | None = None
    for kind, builder in _optimizers().items():
        positions = [item.name for item in signature_of(builder)]
        for call, scopes in _calls_of(tree, kind, ()):
            if not _is_of_torch(call.func, builder, module):
                continue
            known = _KnownNames(module, frozenset().union(*map(_locals, scopes)), parsed, defaults)
            passed = [*zip(positions, call.args, strict=False), *named_values(call)]
            # The first are the parameters to train.
            given = {name: known.argument(name, node) for name, node in passed if name != "params"}
            options = {
                name: item.value for name, item in given.items() if item and item.literal and not item.calls
            }
            unknown = tuple(name for name in given if name not in options)
            if any(item.arg is None for item in call.keywords) or not _NUMBERS.issuperset(unknown):
                return None
            one = OwnOptimizer(kind=kind, options=options, unknown=unknown, line=call.lineno)
            if found is not None and (one.kind, one.options) != (found.kind, found.options):
                return None
            found = found or one
    return found


def _optimizers() -> dict[str, type]:
    import torch

    return {
        name: kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    }


def _is_of_torch(function: ast.expr, kind: type, module: ModuleType) -> bool:
    """Whether what is called is PyTorch's: ``torch.optim.SGD``, ``optim.SGD`` or an imported ``SGD``."""
    if isinstance(function, ast.Attribute):
        return ast.unparse(function.value) in ("torch.optim", "optim")
    return isinstance(function, ast.Name) and vars(module).get(function.id) is kind


def _passed(call: ast.Call, positions: Sequence[str], known: _KnownNames) -> tuple[Argument, ...] | None:
    """What a call passes; None where a part of it is computed."""
    starred = any(isinstance(item, ast.Starred) for item in call.args)
    if starred or len(call.args) > len(positions) or any(item.arg is None for item in call.keywords):
        return None
    found = [
        known.argument(name, node)
        for name, node in [*zip(positions, call.args, strict=False), *named_values(call)]
    ]
    return None if any(item is None for item in found) else tuple(item for item in found if item is not None)


def _calls_of(
    node: ast.AST, name: str, scopes: tuple[_Enclosing, ...]
) -> Iterator[tuple[ast.Call, tuple[_Enclosing, ...]]]:
    """Calls of this name, each with the functions that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and called_name(child) == name:
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
        and any(isinstance(call, ast.Call) and called_name(call) in _PARSERS for call in ast.walk(item))
    }
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and target.elts:
                target = target.elts[0]
            if isinstance(target, ast.Name) and called_name(node.value) in {*makers, *_PARSERS}:
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
        if len(text) > LONGEST or any(called_name(item) not in self.variables for item in calls):
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
