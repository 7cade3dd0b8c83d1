"""A Python file or module -> the user's model object and example inputs.

The file runs as Python would run it, with its own folder importable. Where possible it runs with PyTorch's meta
device as the default, so that no weight is ever allocated.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from analyzer.errors import AnalyzerError, InputError, ModelError
from analyzer.loading.dependencies import Dependencies, recording
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.construction import (
    called_with,
    completed,
    require_fitting,
    required_by,
    values_of,
)
from analyzer.loading.python.hugging_face import configured
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.model_choice import ChosenModel, choose, unwrapped
from analyzer.loading.python.model_libraries import inputs_of_library
from analyzer.loading.python.model_weights import ValuedWeights, built_with
from analyzer.loading.python.nested_inputs import parameter_of
from analyzer.loading.python.source_lines import construction_lines
from analyzer.loading.python.untraceable_calls import cuda_is_elsewhere, unscripted
from analyzer.loading.python.user_module import executed, home_folder, importable
from analyzer.loading.python.user_module import (
    user_failure as user_failure,  # also for whoever runs a UserModel
)
from analyzer.loading.python.user_source.kept_executions import (
    KeptExecution,
    are_kept,
    execution_of,
    keep,
    kept_execution,
)
from analyzer.loading.python.user_source.training_loops import TrainingLoop

if TYPE_CHECKING:
    from torch.nn import Module

    from analyzer.loading.torch_private import Tree


# What example_inputs(batch) is called with where no batch is asked for.
DEFAULT_BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModel:
    """What a Python file holds.

    Attributes:
        model: The ``nn.Module`` in evaluation mode (a plain function of tensors comes wrapped).
        name: The class or function's name.
        module: The executed Python module.
        weights: Which of its tensors have values.
        is_function: Whether the user gave a plain function of tensors.
        assumed: Of a configuration, the inputs whose sizes it leaves open, and the values that fill them.
        notes: What the report should say of how the model was found and built.
        memory_bytes: What a call may allocate; None for no limit.
    """

    model: Module
    name: str
    module: ModuleType
    weights: ValuedWeights
    is_function: bool = False
    assumed: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    memory_bytes: int | None = None

    @property
    def meta(self) -> bool:
        """Whether it is on the meta device."""
        return self.weights == "meta"


def load_user_model(
    reference: Reference,
    *,
    weights: ValuedWeights,
    specs: Sequence[InputSpec] = (),
    memory_bytes: int | None = None,
) -> UserModel:
    """Executes the file and builds its model.

    Args:
        reference: Which file or module, and which name in it.
        weights: Which tensors are to have values.
        specs: The inputs that are given, which only some of its classes may take.
        memory_bytes: What building it may allocate; None for no limit.

    Raises:
        ModelError: No model, several, one that needs arguments, or code that raises.
        MemoryForeseenError: Building it takes more memory than it may.
    """
    inputs = {parameter_of(spec.name) for spec in specs}
    kept = kept_execution(reference, weights=weights, inputs=inputs)
    if kept is not None or not are_kept(weights):
        return _loaded(reference, kept, inputs, weights, memory_bytes)[0]
    found: KeptExecution | AnalyzerError | None = None
    recorded: list[Dependencies] = []
    try:
        with recording(home_folder(reference)) as recorded:
            user, found = _loaded(reference, None, inputs, weights, memory_bytes)
    except AnalyzerError as error:
        found = error
        raise
    finally:
        if found is not None:
            keep(reference, found, recorded[0], weights=weights, inputs=inputs)
    return user


def _loaded(
    reference: Reference,
    kept: KeptExecution | None,
    inputs: Collection[str],
    weights: ValuedWeights,
    memory_bytes: int | None,
) -> tuple[UserModel, KeptExecution | None]:
    """The model of a file, executed where nothing was kept of it, and what may be kept."""
    import torch

    execution = None
    # What the user's code prints is no result of ours: standard output may be a report.
    with (
        importable(home_folder(reference), kept.modules if kept is not None else {}) as finder,
        construction_lines(),
        redirect_stdout(sys.stderr),
        _empty_command_line(reference),
        unscripted(),
    ):
        with (
            built_with(weights, memory_bytes),
            cuda_is_elsewhere(),
            warnings.catch_warnings(),
        ):
            if weights != "real":  # copying a checkpoint into a meta tensor warns once for each
                warnings.simplefilter("ignore")
            if weights != "meta":
                torch.manual_seed(0)  # random weights are the same in every run
            assumed: Mapping[str, tuple[int, int] | None] = {}
            if reference.kind == "configuration":
                built = configured(reference)
                module, assumed = built.module, built.assumed
                choice = ChosenModel(name=module.__name__, candidate=module.model)
            elif kept is not None:
                module, choice = kept.module, kept.afresh()
                finder.loops += kept.loops
            else:
                module = executed(reference, finder)
            with _told_of(finder.loops):
                if reference.kind != "configuration" and kept is None:
                    random_state = torch.get_rng_state()
                    choice = choose(reference, module, inputs)
                    if are_kept(weights):
                        execution = execution_of(module, choice, finder.loops, random_state)
                model, is_function, notes = _build(reference, choice, module)
        model = unwrapped(model)
        set_training(model, training=False)
    offered = inputs_of_library(reference, model)
    if offered is not None:  # beside the library's own module, which stays as it is
        module = ModuleType(module.__name__)
        module.example_inputs = offered  # type: ignore[attr-defined]  # what a user's file would define
    left_out = tuple(
        f"{loop.told} What follows it was left out, but functions, classes and example_inputs."
        for loop in finder.loops
    )
    user = UserModel(
        model=model,
        name=choice.name,
        module=module,
        weights=weights,
        memory_bytes=memory_bytes,
        is_function=is_function,
        assumed=assumed,
        notes=(*choice.notes, *notes, *left_out),
    )
    return user, execution


@contextmanager
def _told_of(loops: list[TrainingLoop]) -> Iterator[None]:
    """Says in an error's hint where the file was not executed further: what is missing may stand there."""
    try:
        yield
    except ModelError as error:
        error.hint = " ".join([*filter(None, [error.hint]), *(loop.told for loop in loops)]) or None
        raise


@contextmanager
def _empty_command_line(reference: Reference) -> Iterator[None]:
    """Lets a script that parses its command line see an empty one, not that of this program."""
    before = sys.argv
    sys.argv = [str(reference.path or reference.module)]
    try:
        yield
    finally:
        sys.argv = before


def _build(
    reference: Reference, choice: ChosenModel, module: ModuleType
) -> tuple[Module, bool, tuple[str, ...]]:
    """The model as an ``nn.Module``, whether it is a plain function of tensors, and what was assumed."""
    import torch

    name, candidate = choice.name, choice.candidate
    if isinstance(candidate, (torch.nn.Module, torch.export.ExportedProgram)):
        if reference.arguments:
            raise ModelError(
                f"{reference.text}: {name} is built already and takes no arguments.",
                hint="Name the class or the function that builds it.",
            )
        return unwrapped(candidate), False, ()
    if not callable(candidate):
        raise ModelError(
            f"{reference.text}: {name} is a {type(candidate).__name__}, not a model.",
            hint="A model is an nn.Module, a class, a function that builds one, or a function of tensors.",
        )
    if inspect.isclass(candidate):
        if not issubclass(candidate, torch.nn.Module):
            raise ModelError(f"{reference.text}: the class {name} is not an nn.Module.")
    elif required_by(candidate) and name != "build_model" and not reference.arguments:
        return function_module(candidate), True, ()
    completion = completed(reference, candidate, module)
    if completion is None:
        require_fitting(reference, name, candidate, module, beside=choice.beside)
        return _built(reference, name, candidate, module), False, ()
    note = f"{name} was built as line {completion.line} builds it: {completion.told} (--arg gives others)."
    return _built(completion.reference, name, candidate, module), False, (note,)


def _built(reference: Reference, name: str, builder: Callable[..., object], module: ModuleType) -> Module:
    import torch

    values = values_of(reference, module)
    try:
        model = called_with(builder, values)
    except AnalyzerError:  # of arguments that do not fit
        raise
    except (Exception, SystemExit) as error:
        raise user_failure(error, f"{reference.text}: {name}() raises") from error
    if isinstance(model, torch.export.ExportedProgram):
        return model.module()
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            f"{reference.text}: {name}() returns a {type(model).__name__}, not an nn.Module.",
            hint="For a plain function of tensors, name it after a colon and give it parameters.",
        )
    return model


def set_training(model: Module, *, training: bool) -> None:
    """Put a model into training or evaluation mode, by its flags where its own ``train`` or ``eval`` does not.

    Programs of ``torch.export`` raise there, and some classes give ``eval`` another meaning.
    """
    with suppress(Exception):
        if training:
            model.train()
        else:
            model.eval()
    if model.training is not training:
        for module in model.modules():
            module.training = training


@contextmanager
def in_mode(model: Module, *, training: bool) -> Iterator[None]:
    """Put a model into a mode inside the block, and each of its modules back into its own afterwards."""
    before = [(module, module.training) for module in model.modules()]
    set_training(model, training=training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def function_module(function: Callable[..., object]) -> Module:
    """Wraps a plain function of tensors as an ``nn.Module`` with the same parameters."""
    import torch

    # static, so that the signature is the function's own: no self among the inputs' names.
    class Function(torch.nn.Module):
        forward = staticmethod(function)

    Function.__name__ = Function.__qualname__ = function.__name__
    return Function()


def call_example_inputs(user: UserModel, batch: int | None, weights: ValuedWeights | None = None) -> Tree:
    """What the file offers as inputs: ``example_inputs(batch)`` called, or the variable; None where neither is.

    ``weights`` says which of them have values, in place of what the model says.

    Raises:
        InputError: The function raises.
    """
    import torch

    offered = getattr(user.module, "example_inputs", None)
    if offered is None or not callable(offered):
        return offered
    weights = weights or user.weights
    with built_with(weights, user.memory_bytes):
        if weights != "meta":
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
