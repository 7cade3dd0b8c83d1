"""What a file shows of its model's arguments: its own calls, and classes that parameters are annotated with.

The file's text is read for it and nothing of it is run. What comes out stands in hints alone.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from analyzer.loading.model_reference import expression

OPEN = "..."  # for a value that nothing shows
LONGEST = 200  # characters of a value that a hint shows
_DEEPEST = 4  # classes in one another
_FLAGS = {"store_true": "False", "store_false": "True"}


def shown_arguments(module: ModuleType, builder: Callable[..., object]) -> tuple[dict[str, str], int]:
    """Values by parameter as the file's own call of the builder has them, and the line of that call.

    A number or text that the call takes from the command line is its default there. Of several calls that which
    tells most counts; without one the line is 0.
    """
    tree = tree_of(module)
    name = getattr(builder, "__name__", "")
    if tree is None or not name:
        return {}, 0
    defaults = command_line_defaults(tree)
    positions = positional_names(builder)
    best: dict[str, str] = {}
    line = 0
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or called_name(call) != name:
            continue
        found = {}
        for parameter, node in [*zip(positions, call.args, strict=False), *named_values(call)]:
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
        for item in signature_of(kind)
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


def signature_of(builder: Callable[..., object]) -> list[inspect.Parameter]:
    """Its parameters; none of what Python cannot look into."""
    try:
        return list(inspect.signature(builder).parameters.values())
    except (TypeError, ValueError):
        return []


def positional_names(builder: Callable[..., object]) -> list[str]:
    """The parameters that may be given by their position."""
    return [
        item.name
        for item in signature_of(builder)
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
    ]


def tree_of(module: ModuleType) -> ast.Module | None:
    """The file's syntax; None where it cannot be read."""
    try:
        return ast.parse(Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def called_name(call: ast.Call) -> str:
    """The last part of what is called: ``Net`` of ``models.Net(3)``."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def named_values(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """What a call passes by name."""
    return ((item.arg, item.value) for item in call.keywords if item.arg is not None)


def _shown(node: ast.expr, defaults: Mapping[str, ast.expr], module: ModuleType) -> str | None:
    """The value as ``--arg`` takes it; None where it is computed."""
    if isinstance(node, ast.Name):
        return None  # one of the file's own is told by its name anyway, and a local one says nothing
    try:
        text = expression(ast.unparse(_Filled(defaults).visit(ast.parse(ast.unparse(node), mode="eval"))))
    except (ValueError, SyntaxError, RecursionError):
        return None
    called = (called_name(item) for item in ast.walk(ast.parse(text)) if isinstance(item, ast.Call))
    return text if len(text) <= LONGEST and all(name in vars(module) for name in called) else None


class _Filled(ast.NodeTransformer):
    """Puts the default of the command line in the place of ``args.hidden``."""

    def __init__(self, defaults: Mapping[str, ast.expr]) -> None:
        self.defaults = defaults

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.defaults.get(node.attr, node) if isinstance(node.value, ast.Name) else node


def command_line_defaults(tree: ast.Module) -> dict[str, ast.expr]:
    """Defaults of the options that the file declares with argparse, by the attribute that holds them."""
    defaults: dict[str, ast.expr] = {}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or called_name(call) != "add_argument":
            continue
        named = dict(named_values(call))
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
