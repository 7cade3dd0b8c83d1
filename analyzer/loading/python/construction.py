"""Arguments of a user's class or builder function: its parameters, and values that fit."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from analyzer.errors import ModelError
from analyzer.loading.model_reference import Argument, Reference
from analyzer.loading.python.user_module import user_failure
from analyzer.text import did_you_mean, first_few, plural

_OF_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_UNKNOWN = "has no argument "
_OPEN = "..."  # for a value that the user must fill in
_DEEPEST = 4  # classes in one another
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(builder: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters that have names; none of what Python cannot look into."""
    return [item for item in _all_parameters(builder) or () if item.kind not in _OF_ANY]


def required_by(builder: Callable[..., object]) -> list[str]:
    """Return names of the parameters that have no default."""
    return [item.name for item in parameters_of(builder) if item.default is item.empty]


def values_of(reference: Reference, module: ModuleType) -> list[tuple[str | None, object]]:
    """Name and value of each argument; a bare name is the file's variable, where it has one.

    Raises:
        ModelError: It has none of a name in parentheses, or a call of what it has fails.
    """
    return [(item.name, _value(reference, item, module)) for item in reference.arguments]


def _value(reference: Reference, argument: Argument, module: ModuleType) -> object:
    if argument.calls:
        return _evaluated(argument.literal, reference, module)
    if not argument.word:
        return argument.value
    if argument.word in vars(module):
        result: object = vars(module)[argument.word]
        # `--arg act=relu` is a text where the file has but imported a function of that name.
        if not argument.literal or _is_own(result, module):
            return result
    if argument.literal:
        return argument.value
    raise ModelError(
        f"{reference.text}: {argument.word} is no literal, and {module.__name__} has no variable of that name.",
        hint=f"A text stands in quotes: '{argument.word}'.",
    )


class _Names(dict[str, Any]):
    """The variables of a module, those too that it makes when they are looked up."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(self._module, name)
        except AttributeError as error:
            raise NameError(f"{self._module.__name__} has no class or function {name}") from error


def _evaluated(written: str, reference: Reference, module: ModuleType) -> object:
    """Evaluate literals and calls of the file's own names; ``model_reference`` lets nothing else pass."""
    try:
        return eval(written, {"__builtins__": {}}, _Names(module))
    except NameError as error:
        raise ModelError(
            f"{reference.text}: {written}: {error}.",
            hint=f"What it defines or imports can be called there. A text stands in quotes: '{written}'.",
        ) from error
    except Exception as error:
        raise user_failure(error, f"{reference.text}: {written} raises") from error


def _is_own(value: object, module: ModuleType) -> bool:
    """Return whether a variable holds a value, or a class or a function that the file itself defines."""
    if isinstance(value, (type, FunctionType, BuiltinFunctionType, ModuleType)):
        return getattr(value, "__module__", None) == module.__name__
    return True


def called_with(builder: Callable[..., object], values: Sequence[tuple[str | None, object]]) -> object:
    """Return its result with these arguments; a dict for a dataclass is one of its objects.

    Raises:
        ModelError: A dict has what its dataclass has not.
    """
    types = _annotations_of(builder)
    by_position = [types.get(item.name) for item in _all_parameters(builder) or () if item.kind in _POSITIONAL]
    positional = [value for name, value in values if name is None]
    count = len(positional)
    by_position = [*by_position[:count], *[None] * (count - len(by_position))]
    return builder(
        *map(_as_annotated, positional, by_position),
        **{name: _as_annotated(value, types.get(name)) for name, value in values if name is not None},
    )


def _as_annotated(value: object, annotation: object) -> object:
    kind = _dataclass_in(annotation)
    if kind is None or not isinstance(value, Mapping):
        return value
    fields = [item.name for item in dataclasses.fields(kind) if item.init]
    unknown = [key for key in value if key not in fields]
    missing = [name for name in required_by(kind) if name not in value]
    if unknown or missing:
        fault = f"has no field {unknown[0]}" if unknown else f"needs {', '.join(missing)}"
        raise ModelError(
            f"{kind.__name__} {fault}.", hint=f"It has {', '.join(map(_shown, parameters_of(kind)))}."
        )
    return called_with(kind, list(value.items()))


def fits(builder: Callable[..., object], arguments: Sequence[Argument]) -> bool:
    """Return whether it can be called with these arguments."""
    return not _fault(builder, arguments)[0]


def require_fitting(
    reference: Reference,
    name: str,
    builder: Callable[..., object],
    module: ModuleType,
    *,
    alternative: str = "",
) -> None:
    """Check that no argument is missing or unknown; the hint names ``alternative``, a model that builds.

    Raises:
        ModelError: It cannot be called with the reference's arguments.
    """
    fault, missing = _fault(builder, reference.arguments)
    if not fault:
        return
    where = f"{reference.text}: {name} {fault}."
    if missing:
        hint = _how_to_give(reference, name, builder, missing, module)
        raise ModelError(where, hint=f"{hint} {alternative}".rstrip())
    known = ", ".join(map(_shown, parameters_of(builder)))
    unknown = fault.removeprefix(_UNKNOWN) if fault.startswith(_UNKNOWN) else ""
    meant = did_you_mean(unknown, [item.name for item in parameters_of(builder)]) if unknown else ""
    takes = f"It takes {known}." if known else "It takes none."
    raise ModelError(where, hint=f"{meant} {takes}".lstrip())


def _fault(builder: Callable[..., object], arguments: Sequence[Argument]) -> tuple[str, list[str]]:
    """Return why a call cannot be, as what follows the builder's name, and which arguments it lacks."""
    parameters = _all_parameters(builder)
    if parameters is None:  # it says itself what is wrong
        return "", []
    kinds = [item.kind for item in parameters]
    by_position = [item.name for item in parameters if item.kind in _POSITIONAL]
    by_name = [item.name for item in parameters if item.kind is not inspect.Parameter.POSITIONAL_ONLY]
    given = [item.name for item in arguments if item.name is not None]
    count = sum(item.name is None for item in arguments)
    if count > len(by_position) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return f"takes {plural(len(by_position), 'argument')} by position, not {count}", []
    unknown = [name for name in given if name not in by_name]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        return f"{_UNKNOWN}{unknown[0]}", []
    if twice := [name for name in given if name in by_position[:count]]:
        return f"is given {twice[0]} twice, by position and by name", []
    there = {*given, *by_position[:count]}
    if missing := [name for name in required_by(builder) if name not in there]:
        return f"needs arguments ({', '.join(missing)})", missing
    return "", []


def _how_to_give(
    reference: Reference, name: str, builder: Callable[..., object], missing: Sequence[str], module: ModuleType
) -> str:
    """Return all arguments that are still missing, in one command."""
    text = reference.text.partition("(")[0] if reference.arguments else reference.text
    target = text if reference.name is not None else f"{text}:{name}"
    given = []
    for item in missing:
        # What the file calls as the parameter is called is what it means.
        own = item in vars(module) and _is_own(vars(module)[item], module)
        given.append(f"{item}={item if own else _built_by_annotation(module, builder, item) or _OPEN}")
    written = ", ".join([*map(str, reference.arguments), *given])
    options = _options(reference.arguments, given)
    hint = (
        f"Run `analyze {shlex.join([target, *options] if options is not None else [f'{target}({written})'])}`"
    )
    hint += f', or write "{target}({written})"' if options is not None else ""
    if name != "build_model":
        hint += f", or add a line to the file: def build_model(): return {name}({written})"
    if any(_OPEN in item for item in given):
        hint += ", with values in place of `...`"
    defaults = [_shown(item) for item in parameters_of(builder) if item.default is not item.empty]
    return hint + (f". The others have defaults: {first_few(defaults, 6)}." if defaults else ".")


def _options(arguments: Sequence[Argument], given: Sequence[str]) -> list[str] | None:
    """Return arguments as ``--arg`` takes them; None where one is given by its position."""
    if any(item.name is None for item in arguments):
        return None
    return [part for item in (*map(str, arguments), *given) for part in ("--arg", item)]


def _shown(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return parameter.name
    value = repr(parameter.default)
    return f"{parameter.name}={value if len(value) <= 40 else '...'}"


def _all_parameters(builder: Callable[..., object]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(builder).parameters.values())
    except (TypeError, ValueError):
        return None


def _built_by_annotation(
    module: ModuleType, builder: Callable[..., object], parameter: str, depth: int = 0
) -> str | None:
    """Return a call of the class in a parameter's annotation, and its needs; None without one."""
    kind = _own_class(_annotations_of(builder).get(parameter), module)
    if kind is None or depth == _DEEPEST:
        return None
    needed = [
        f"{name}={_built_by_annotation(module, kind, name, depth + 1) or _OPEN}" for name in required_by(kind)
    ]
    return f"{kind.__name__}({', '.join(needed)})"


def _annotations_of(builder: Callable[..., object]) -> Mapping[str, Any]:
    """Return the types of its parameters; empty where they name what is not there."""
    try:
        if isinstance(builder, type) and not dataclasses.is_dataclass(builder):
            return typing.get_type_hints(builder.__init__)  # type: ignore[misc]  # of a class, not of an object
        return typing.get_type_hints(builder)
    except Exception:  # whatever a user's annotation evaluates to
        return {}


def _dataclass_in(annotation: object) -> type | None:
    """Return the one dataclass that an annotation names, ``X | None`` too."""
    named = (annotation, *typing.get_args(annotation))
    kinds = {item for item in named if isinstance(item, type) and dataclasses.is_dataclass(item)}
    return kinds.pop() if len(kinds) == 1 and typing.get_origin(annotation) not in (list, tuple, dict) else None


def _own_class(annotation: object, module: ModuleType) -> type | None:
    """Return the class by its name in the file: a dataclass, or one that the file defines."""
    result = _dataclass_in(annotation) or annotation
    if not isinstance(result, type) or issubclass(result, enum.Enum):
        return None
    kind: type = result
    known = vars(module).get(kind.__name__) is kind
    return kind if known and (dataclasses.is_dataclass(kind) or kind.__module__ == module.__name__) else None
