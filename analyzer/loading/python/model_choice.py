"""Choose the model in a user's file that names none."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import ModelError
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.construction import fits
from analyzer.loading.python.first_forward import ScriptRun
from analyzer.loading.python.hugging_face import library_builder
from analyzer.loading.torch_private import compiled_from
from analyzer.text import listed

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
    """Return the variable that holds the model; None where the file's variables hold none.

    Raises:
        ModelError: They hold several, and nothing tells which is meant.
    """
    kinds = _kinds(_models_in_variables(module))
    trained = _trained(module)
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


def _trained(module: ModuleType) -> set[int]:
    """Return the parameters that the file's optimizers update."""
    import torch

    return {
        id(parameter)
        for value in vars(module).values()
        if isinstance(value, torch.optim.Optimizer)
        for group in value.param_groups
        for parameter in group["params"]
    }


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
    """Return the class that is the model; None where the file defines none.

    Raises:
        ModelError: Several can be built, and nothing tells which is meant.
    """
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
