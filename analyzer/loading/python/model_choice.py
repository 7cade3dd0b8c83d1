"""Choose the model in a user's file that names none, and the arguments of what builds it."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import shlex
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import ModelError
from analyzer.loading.model_reference import Argument, Reference
from analyzer.loading.python.first_forward import ScriptRun, trained_by
from analyzer.loading.python.hugging_face import library_builder
from analyzer.loading.python.user_module import user_failure
from analyzer.loading.torch_private import compiled_from
from analyzer.text import did_you_mean, first_few, listed, plural

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module


# Functions that the file offers to us or to Python, never the model itself.
_HELPERS = frozenset(
    {"build_model", "example_inputs", "example_targets", "loss", "main", "criterion", "optimizer"}
)
# Ends of the names of modules that judge what a model gives.
_JUDGES = ("Loss", "Criterion")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """The part of a file that is the model, or builds it.

    Attributes:
        candidate: The object: a module, a class or a function.
        notes: What the report should say of the choice.
        beside: What could be built instead, for the hint where this one cannot.
    """

    name: str
    candidate: Any
    notes: tuple[str, ...] = ()
    beside: str = ""


def choose(reference: Reference, run: ScriptRun, inputs: Collection[str]) -> ChosenModel:
    """Return what is named, else ``build_model``, ``model``, what is called, a variable, a class, a function.

    Raises:
        ModelError: There is none, or several.
    """
    module, forward = run.module, run.forward
    called: ChosenModel | None = None
    if forward is not None and not reference.arguments:  # which go to a class
        called = ChosenModel(name=forward.name, candidate=forward.module, notes=(forward.message,))
    if reference.name is not None:
        if called is not None:
            return called
        result = library_builder(reference, module) or _named(reference, module)
        return ChosenModel(name=reference.name, candidate=result)
    if callable(getattr(module, "build_model", None)):
        return ChosenModel(name="build_model", candidate=module.build_model)
    if getattr(module, "model", None) is not None:  # `model = None` is no model
        return ChosenModel(name="model", candidate=module.model)
    if called is not None:
        return called
    if not reference.arguments:
        variable = _variable(reference, module)
        if variable is not None:
            return variable
    return _class(reference, module, inputs) or _function(reference, module)


def _named(reference: Reference, module: ModuleType) -> object:
    value: object = module
    assert reference.name is not None
    for part in reference.name.split("."):
        if not hasattr(value, part):
            raise ModelError(f"{reference.text}: there is no {reference.name}.", hint=_models_defined(module))
        value = getattr(value, part)
    return value


def _models_defined(module: ModuleType) -> str | None:
    names = ["build_model"] if callable(getattr(module, "build_model", None)) else []
    names += [item.__name__ for item in _classes(module)] + [item.__name__ for item in _functions(module)]
    names += list(_instances(module))
    return f"It defines {', '.join(names)}." if names else None


# Variables


def _instances(module: ModuleType) -> dict[str, Module | ExportedProgram]:
    """By name, the variables that hold a module of PyTorch, or a program that was exported of one."""
    import torch

    kinds = (torch.nn.Module, torch.export.ExportedProgram)
    return {name: value for name, value in vars(module).items() if isinstance(value, kinds)}


def _variable(reference: Reference, module: ModuleType) -> ChosenModel | None:
    """Return the variable that holds the model; None where the file's variables hold none."""
    from torch.optim import Optimizer

    kinds = _kinds(_models_in_variables(module))
    trained = trained_by(value for value in vars(module).values() if isinstance(value, Optimizer))
    updated = [kind for kind in kinds if any(trained & _parameters(value) for value in kind.values())]
    classes = _classes(module)
    own = [kind for kind in kinds if any(type(value) in classes for value in kind.values())]
    # A network of a library that no optimizer of the file trains is a part, or a judge, of the file's own.
    kinds = updated or own or ([] if classes else kinds)
    if not kinds:
        return None
    if len(kinds) > 1:
        held = [(name, type(value)) for kind in kinds for name, value in kind.items()]
        shown = [f"{name} ({cls.__name__})" for name, cls in held]
        raise ModelError(
            f"{reference.text} holds {len(kinds)} models: {', '.join(shown)}.",
            hint=f"Name one: {reference.text}:{next(iter(kinds[0]))}, or define build_model().",
        )
    (kind,) = kinds
    name = next((name for name, value in kind.items() if trained & _parameters(value)), next(iter(kind)))
    others = [other for other in kind if other != name]
    note = f"The model is the variable {name} of {reference.text}"
    if others:
        verb = "is another of its class" if len(others) == 1 else "are others of its class"
        note += f"; {listed(others)} {verb} ({reference.text}:{others[0]})"
    return ChosenModel(name=name, candidate=kind[name], notes=(f"{note}.",))


def unwrapped(model: Module | ExportedProgram) -> Module:
    """Return the module inside an exported program, ``torch.compile`` or a wrapper for several devices."""
    from torch.export import ExportedProgram
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        if isinstance(model, (DataParallel, DistributedDataParallel)):
            model = model.module
        elif isinstance(model, ExportedProgram):
            model = model.module()
        elif (inner := compiled_from(model)) is not None:
            model = inner
        else:
            return model


def _models_in_variables(module: ModuleType) -> dict[str, Module]:
    """Return modules with parameters, each once, that are no part of another."""
    result: dict[str, Module] = {}
    for name, wrapped in _instances(module).items():
        value = unwrapped(wrapped)
        if _parameters(value) and not any(value is other for other in result.values()):
            result[name] = value
    parts = {id(part) for value in result.values() for part in value.modules() if part is not value}
    return {name: value for name, value in result.items() if id(value) not in parts} or result


def _kinds(variables: Mapping[str, Module]) -> list[dict[str, Module]]:
    """Return the variables by what they hold: a copy has the class and the shapes of what it is a copy of."""
    kinds: dict[Any, dict[str, Module]] = {}
    for name, value in variables.items():
        kinds.setdefault((type(value), _shapes(value)), {})[name] = value
    return list(kinds.values())


def _shapes(model: Module) -> tuple[tuple[str, Any], ...]:
    from torch.nn.parameter import is_lazy

    return tuple(
        (name, None if is_lazy(parameter) else tuple(parameter.shape))
        for name, parameter in model.named_parameters()
    )


def _parameters(model: Module) -> set[int]:
    return {id(parameter) for parameter in model.parameters()}


# Classes


def _classes(module: ModuleType) -> list[type[Module]]:
    import torch

    types = (value for value in vars(module).values() if isinstance(value, type))
    return [
        value
        for value in dict.fromkeys(types)  # once, under however many names
        if issubclass(value, torch.nn.Module) and value.__module__ == module.__name__  # not what it imports
    ]


def _class(reference: Reference, module: ModuleType, inputs: Collection[str]) -> ChosenModel | None:
    """Return the class that is the model; None where the file defines none."""
    classes = _classes(module)
    ready = [item for item in classes if fits(item, reference.arguments)]
    if reference.arguments and len(ready) == 1:
        return ChosenModel(name=ready[0].__name__, candidate=ready[0])
    whole = _whole_models(module, classes, inputs)
    buildable = [item for item in whole if item in ready]
    if len(buildable) > 1:
        names = ", ".join(item.__name__ for item in buildable)
        raise ModelError(
            f"{reference.text} defines {len(buildable)} models: {names}.",
            hint=f"Name one: {reference.text}:{buildable[-1].__name__}, or define build_model().",
        )
    if not whole:
        return None
    chosen = buildable[0] if buildable else whole[-1]  # whose arguments are told
    others = [item.__name__ for item in ready if item is not chosen]
    if not others:
        return ChosenModel(name=chosen.__name__, candidate=chosen)
    note = (
        f"{chosen.__name__} was taken of the {len(classes)} models of {reference.text}: the others are parts "
        f"of it, losses, or take other inputs ({reference.text}:{others[0]} names another)."
    )
    alternative = f"{others[-1]} needs none: {reference.text}:{others[-1]}."
    return ChosenModel(name=chosen.__name__, candidate=chosen, notes=(note,), beside=alternative)


def _whole_models(
    module: ModuleType, classes: Sequence[type[Module]], inputs: Collection[str]
) -> list[type[Module]]:
    """Return the classes that take these inputs, judge nothing and are no part of another such class."""
    taking = [item for item in classes if _takes(item, inputs)] or list(classes)
    models = [item for item in taking if not item.__name__.endswith(_JUDGES)] or taking
    used = _names_used(module)
    whole = [
        item
        for item in models
        if not any(item.__name__ in used.get(other.__name__, ()) for other in models if other is not item)
    ]
    return whole or models


def _takes(kind: type[Module], inputs: Collection[str]) -> bool:
    """Return whether its ``forward`` is its own and takes inputs of these names."""
    import torch

    forward = inspect.getattr_static(kind, "forward", None)
    if forward is inspect.getattr_static(torch.nn.Module, "forward"):
        return False  # a base of models
    try:
        parameters = inspect.signature(kind.forward).parameters.values()
    except (TypeError, ValueError):
        return True
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        return True
    return {item.name for item in parameters} >= set(inputs)


def _names_used(module: ModuleType) -> dict[str, set[str]]:
    """By what the file defines, which of that its code uses, itself or through functions and tables.

    A class that another inherits from is another model, not a part.
    """
    used: dict[str, set[str]] = {}
    for name, value in vars(module).items():
        if isinstance(value, (dict, list, tuple)):
            items = value.values() if isinstance(value, dict) else value
            used[name] = {item.__name__ for item in items if isinstance(item, (type, FunctionType))}
        elif isinstance(value, (type, FunctionType)) and value.__module__ == module.__name__:
            functions = vars(value).values() if isinstance(value, type) else (value,)
            codes = [item.__code__ for item in functions if isinstance(item, FunctionType)]
            used[name] = {item for code in codes for item in _names_in(code)}
    return {name: _reached(name, used) for name in used}


def _names_in(code: CodeType) -> set[str]:
    inner = [item for item in code.co_consts if isinstance(item, CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _reached(start: str, used: Mapping[str, set[str]]) -> set[str]:
    result: set[str] = set()
    waiting = [start]
    while waiting:
        for name in used.get(waiting.pop(), set()) & used.keys():
            if name not in result:
                result.add(name)
                waiting.append(name)
    return result


# Functions


def _functions(module: ModuleType) -> list[FunctionType]:
    return [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and name not in _HELPERS
    ]


def _function(reference: Reference, module: ModuleType) -> ChosenModel:
    functions = _functions(module)
    if len(functions) == 1:
        return ChosenModel(name=functions[0].__name__, candidate=functions[0])
    if functions:
        names = ", ".join(item.__name__ for item in functions)
        raise ModelError(
            f"{reference.text} defines no model but {len(functions)} functions: {names}.",
            hint=f"Name one: {reference.text}:{functions[0].__name__}.",
        )
    named = list(_instances(module))
    raise ModelError(
        f"{reference.text} holds no model.",
        hint=f"Name one: {reference.text}:{named[0]}."
        if named
        else "Define build_model(), a variable model, or one nn.Module subclass.",
    )


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
