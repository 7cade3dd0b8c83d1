"""A Python file or module -> the user's model object and example inputs.

The file runs as Python would run it, with its own folder importable. Where possible it runs with PyTorch's meta
device as the default, so that no weight is ever allocated.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, InputError, ModelError
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.construction import called_with, fits, require_fitting, required_by, values_of
from analyzer.loading.python.hugging_face import configured
from analyzer.loading.python.model_libraries import inputs_of_library, library_builder
from analyzer.loading.python.source_lines import construction_lines
from analyzer.loading.python.untraceable_calls import cuda_is_elsewhere, unscripted
from analyzer.loading.python.user_module import executed, home_folder, importable
from analyzer.loading.python.user_module import (
    user_failure as user_failure,  # also for whoever runs a UserModel
)
from analyzer.loading.torch_private import compiled_from

if TYPE_CHECKING:
    from torch.nn import Module

    from analyzer.loading.torch_private import Tree


# Functions that the file offers to us or to Python, never the model itself.
_HELPERS = frozenset(
    {"build_model", "example_inputs", "example_targets", "loss", "main", "criterion", "optimizer"}
)

# What example_inputs(batch) is called with where no batch is asked for.
DEFAULT_BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModel:
    """What a Python file holds.

    Attributes:
        model: The ``nn.Module`` in evaluation mode (a plain function of tensors comes wrapped).
        name: The class or function's name.
        module: The executed Python module.
        meta: Whether it was built on the meta device, without weights.
        is_function: Whether the user gave a plain function of tensors.
        assumed: Of a configuration, the inputs whose sizes it leaves open, and the values that fill them.
    """

    model: Module
    name: str
    module: ModuleType
    meta: bool
    is_function: bool = False
    assumed: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)


def load_user_model(reference: Reference, *, meta: bool) -> UserModel:
    """Executes the file and builds its model.

    Args:
        reference: Which file or module, and which name in it.
        meta: Whether to build on the meta device.

    Raises:
        ModelError: No model, several, one that needs arguments, or code that raises.
    """
    import torch

    # What the user's code prints is no result of ours: standard output may be a report.
    with (
        importable(home_folder(reference)),
        construction_lines(),
        redirect_stdout(sys.stderr),
        _empty_command_line(reference),
        unscripted(),
    ):
        with (
            torch.device("meta") if meta else nullcontext(),
            cuda_is_elsewhere(),
            warnings.catch_warnings(),
        ):
            if meta:  # copying a checkpoint into a meta tensor warns once for each
                warnings.simplefilter("ignore")
            else:
                torch.manual_seed(0)  # random weights are the same in every run
            assumed: Mapping[str, tuple[int, int] | None] = {}
            if reference.kind == "configuration":
                built = configured(reference)
                module, assumed = built.module, built.assumed
                name, candidate = module.__name__, module.model
            else:
                module = executed(reference)
                name, candidate = _choose_candidate(reference, module)
            model, is_function = _build(reference, name, candidate, module)
        model = unwrapped(model)
        model.eval()
    offered = inputs_of_library(reference, model)
    if offered is not None:  # beside the library's own module, which stays as it is
        module = ModuleType(module.__name__)
        module.example_inputs = offered  # type: ignore[attr-defined]  # what a user's file would define
    return UserModel(model=model, name=name, module=module, meta=meta, is_function=is_function, assumed=assumed)


@contextmanager
def _empty_command_line(reference: Reference) -> Iterator[None]:
    """Lets a script that parses its command line see an empty one, not that of this program."""
    before = sys.argv
    sys.argv = [str(reference.path or reference.module)]
    try:
        yield
    finally:
        sys.argv = before


def unwrapped(model: Module) -> Module:
    """The module inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        if isinstance(model, (DataParallel, DistributedDataParallel)):
            model = model.module
        elif (inner := compiled_from(model)) is not None:
            model = inner
        else:
            return model


def _choose_candidate(reference: Reference, module: ModuleType) -> tuple[str, object]:
    if reference.name is not None:
        return reference.name, library_builder(reference, module) or _named(reference, module)
    if callable(getattr(module, "build_model", None)):
        return "build_model", module.build_model
    if getattr(module, "model", None) is not None:  # `model = None` is no model
        return "model", module.model
    return _only_candidate(reference, module)


def _named(reference: Reference, module: ModuleType) -> object:
    value: object = module
    assert reference.name is not None
    for part in reference.name.split("."):
        if not hasattr(value, part):
            raise ModelError(f"{reference.text}: there is no {reference.name}.", hint=_models_defined(module))
        value = getattr(value, part)
    return value


def _classes(module: ModuleType) -> list[type[Module]]:
    import torch

    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, torch.nn.Module)
        and value.__module__ == module.__name__  # not what the file imports
    ]


def _instances(module: ModuleType) -> list[str]:
    """The names of variables that hold a model."""
    import torch

    return [name for name, value in vars(module).items() if isinstance(value, torch.nn.Module)]


def _functions(module: ModuleType) -> list[FunctionType]:
    return [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and name not in _HELPERS
    ]


def _models_defined(module: ModuleType) -> str | None:
    classes, functions = _classes(module), _functions(module)
    names = [item.__name__ for item in classes] + [item.__name__ for item in functions] + _instances(module)
    return f"It defines {', '.join(names)}." if names else None


def _only_candidate(reference: Reference, module: ModuleType) -> tuple[str, object]:
    classes = _classes(module)
    ready = [item for item in classes if fits(item, reference.arguments)]
    if len(ready) > 1:
        names = ", ".join(item.__name__ for item in ready)
        raise ModelError(
            f"{reference.text} defines {len(ready)} models: {names}.",
            hint=f"Name one: {reference.text}:{ready[-1].__name__}, or define build_model().",
        )
    if ready:
        return ready[0].__name__, ready[0]
    if classes:
        return classes[-1].__name__, classes[-1]  # whose arguments are told
    functions = _functions(module)
    if len(functions) == 1:
        return functions[0].__name__, functions[0]
    if functions:
        names = ", ".join(item.__name__ for item in functions)
        raise ModelError(
            f"{reference.text} defines no model but {len(functions)} functions: {names}.",
            hint=f"Name one: {reference.text}:{functions[0].__name__}.",
        )
    named = _instances(module)
    raise ModelError(
        f"{reference.text} holds no model.",
        hint=f"Name one: {reference.text}:{named[0]}."
        if named
        else "Define build_model(), a variable model, or one nn.Module subclass.",
    )


def _build(reference: Reference, name: str, candidate: Any, module: ModuleType) -> tuple[Module, bool]:
    """The model as an ``nn.Module``, and whether the user gave a plain function of tensors."""
    import torch

    if isinstance(candidate, torch.nn.Module):
        if reference.arguments:
            raise ModelError(
                f"{reference.text}: {name} is built already and takes no arguments.",
                hint="Name the class or the function that builds it.",
            )
        return candidate, False
    if not callable(candidate):
        raise ModelError(
            f"{reference.text}: {name} is a {type(candidate).__name__}, not a model.",
            hint="A model is an nn.Module, a class, a function that builds one, or a function of tensors.",
        )
    if inspect.isclass(candidate):
        if not issubclass(candidate, torch.nn.Module):
            raise ModelError(f"{reference.text}: the class {name} is not an nn.Module.")
    elif required_by(candidate) and name != "build_model" and not reference.arguments:
        return function_module(candidate), True
    require_fitting(reference, name, candidate, module)
    return _built(reference, name, candidate, module), False


def _built(reference: Reference, name: str, builder: Callable[..., object], module: ModuleType) -> Module:
    import torch

    values = values_of(reference, module)
    try:
        model = called_with(builder, values)
    except AnalyzerError:  # of arguments that do not fit
        raise
    except (Exception, SystemExit) as error:
        raise user_failure(error, f"{reference.text}: {name}() raises") from error
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            f"{reference.text}: {name}() returns a {type(model).__name__}, not an nn.Module.",
            hint="For a plain function of tensors, name it after a colon and give it parameters.",
        )
    return model


def function_module(function: Callable[..., object]) -> Module:
    """Wraps a plain function of tensors as an ``nn.Module`` with the same parameters."""
    import torch

    # static, so that the signature is the function's own: no self among the inputs' names.
    class Function(torch.nn.Module):
        forward = staticmethod(function)

    Function.__name__ = Function.__qualname__ = function.__name__
    return Function()


def call_example_inputs(user: UserModel, batch: int | None, *, meta: bool) -> Tree:
    """What the file offers as inputs: ``example_inputs(batch)`` called, or the variable; None where neither is.

    Raises:
        InputError: The function raises.
    """
    import torch

    offered = getattr(user.module, "example_inputs", None)
    if offered is None or not callable(offered):
        return offered
    with torch.device("meta") if meta else nullcontext():
        if not meta:
            torch.manual_seed(1)  # random inputs are the same in every run, and others than the weights
        try:
            required = required_by(offered)
            if batch is None:
                return offered(DEFAULT_BATCH) if required else offered()
            return offered(batch) if inspect.signature(offered).parameters else offered()
        except AnalyzerError:  # of those that are made here
            raise
        except Exception as error:
            raise user_failure(error, "example_inputs raises", InputError) from error


def path_of(user: UserModel) -> Path | None:
    """The file that holds the model."""
    file = getattr(user.module, "__file__", None)
    return Path(file) if file else None
