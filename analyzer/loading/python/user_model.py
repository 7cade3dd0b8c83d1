"""A Python file or module -> the user's model object and example inputs.

The file runs as Python would run it, with its own folder importable, up to the first forward of its model.
Where possible it runs with PyTorch's meta device as the default, so that no weight is ever allocated.
"""

from __future__ import annotations

import inspect
import os
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
from analyzer.loading.python.first_forward import FirstForward, ScriptRun, no_training, one_run
from analyzer.loading.python.hugging_face import configured, inputs_of_library
from analyzer.loading.python.input_spec import InputSpec, parameter_of
from analyzer.loading.python.model_choice import (
    ChosenModel,
    called_with,
    choose,
    require_fitting,
    required_by,
    unwrapped,
    values_of,
)
from analyzer.loading.python.model_weights import ValuedWeights, built_with, cuda_is_elsewhere, on_meta
from analyzer.loading.python.source_lines import construction_lines
from analyzer.loading.python.user_module import (
    CachedExecution,
    Modes,
    are_cached,
    cached_execution,
    execute,
    execute_as_script,
    execution_of,
    home_folder,
    importable,
    store,
    why_no_forward,
)
from analyzer.loading.python.user_module import (
    user_failure as user_failure,  # also for callers of a UserModel
)
from analyzer.loading.torch_private import replaced, scripting_disabled

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from analyzer.loading.torch_private import Tree


# What example_inputs(batch) is called with where no batch is asked for.
DEFAULT_BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModel:
    """The model of a Python file.

    Attributes:
        model: The ``nn.Module`` in evaluation mode (a plain function of tensors comes wrapped).
        weights: Which of its tensors have values.
        assumed: Of a configuration, the inputs whose sizes it leaves open, and the values that fill them.
        notes: What the report should say of how the model was found and built.
        memory_bytes: What a call may allocate; None for no limit.
        forward: The first call that the file itself makes of the model; None where it was not reached.
        optimizers: Those that the file has built.
        no_forward: Why the file, run as a script, calls no model; empty where that was not tried.
    """

    model: Module
    name: str
    module: ModuleType
    weights: ValuedWeights
    is_function: bool = False
    assumed: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    memory_bytes: int | None = None
    forward: FirstForward | None = None
    optimizers: tuple[Optimizer, ...] = ()
    no_forward: str = ""

    @property
    def meta(self) -> bool:
        """Return whether it is on the meta device."""
        return self.weights == "meta"


def load_user_model(
    reference: Reference,
    *,
    weights: ValuedWeights,
    specs: Sequence[InputSpec] = (),
    memory_bytes: int | None = None,
    training: bool = False,
) -> UserModel:
    """Execute the file and build its model.

    Raises:
        ModelError: No model, several, one that needs arguments, or code that raises.
        MemoryForeseenError: Building it takes more memory than it may.
    """
    inputs = {parameter_of(spec.name) for spec in specs}
    request = (reference, weights, frozenset(inputs), os.getcwd())
    cached = cached_execution(request)
    if cached is not None or not are_cached(weights):
        return _loaded(reference, cached, inputs, weights, memory_bytes, training)[0]
    result: CachedExecution | AnalyzerError | None = None
    recorded: list[Dependencies] = []
    try:
        with recording(home_folder(reference)) as recorded:
            user, result = _loaded(reference, None, inputs, weights, memory_bytes, training)
    except AnalyzerError as error:
        result = error
        raise
    finally:
        if result is not None:
            store(request, result, recorded[0])
    return user


def _loaded(
    reference: Reference,
    reused: CachedExecution | None,
    inputs: Collection[str],
    weights: ValuedWeights,
    memory_bytes: int | None,
    training: bool,
) -> tuple[UserModel, CachedExecution | None]:
    """Return the model of a file, executed where it is not cached, and its execution to cache."""
    import torch

    execution = None
    run: ScriptRun | None = None
    assumed: Mapping[str, tuple[int, int] | None] = {}

    @contextmanager
    def modes() -> Iterator[None]:
        with built_with(weights, memory_bytes), cuda_is_elsewhere(), warnings.catch_warnings():
            if weights != "real":  # copying a checkpoint into a meta tensor warns once for each
                warnings.simplefilter("ignore")
            yield

    # What the user's code prints is no result of ours: standard output may be a report.
    with (
        one_run(),
        importable(home_folder(reference), reused.modules if reused is not None else {}),
        construction_lines(),
        redirect_stdout(sys.stderr),
        # A script that parses its command line sees its own arguments, not those of this program.
        replaced(sys, "argv", [str(reference.path or reference.module), *reference.script_arguments]),
        scripting_disabled(),
        modes(),
    ):
        if weights != "meta":
            torch.manual_seed(0)  # random weights are the same in every run
        if reference.kind == "configuration":
            module, assumed = configured(reference)
            choice = ChosenModel(name=module.__name__, candidate=module.model)
        elif reused is not None:
            run, choice = reused.run, reused.afresh()
            module = run.module
        else:
            choice, run = _executed(reference, inputs, weights, training, modes)
            module = run.module
            if are_cached(weights):
                execution = execution_of(run, choice, torch.get_rng_state())
        model, is_function = _build(reference, choice, module)
        model = unwrapped(model)
        set_training(model, training=False)
    offered = inputs_of_library(reference, model)
    if offered is not None:  # the library's own module stays as it is
        module = ModuleType(module.__name__)
        module.example_inputs = offered  # type: ignore[attr-defined]  # what a user's file would define
    forward = run.forward if run is not None else None
    if forward is not None and type(unwrapped(forward.module)).__name__ != type(model).__name__:
        forward = None
    user = UserModel(
        model=model,
        name=choice.name,
        module=module,
        weights=weights,
        memory_bytes=memory_bytes,
        is_function=is_function,
        assumed=assumed,
        notes=choice.notes,
        forward=forward,
        optimizers=tuple(run.optimizers) if run is not None else (),
        no_forward=why_no_forward(run) if run is not None and run.error is not None and forward is None else "",
    )
    return user, execution


def _executed(
    reference: Reference, inputs: Collection[str], weights: ValuedWeights, training: bool, modes: Modes
) -> tuple[ChosenModel, ScriptRun]:
    """Return the model of a file and its execution: as an import, and as a script for what that leaves open."""
    quiet = weights != "meta"  # which is the first way; what is executed again prints the same
    run = execute(reference, modes, quiet=quiet)
    choice: ChosenModel | None = None
    fault: ModelError | None = None
    try:
        choice = choose(reference, run, inputs)
    except ModelError as error:
        fault = error
    if choice is not None and inspect.isclass(choice.candidate):
        try:
            require_fitting(reference, choice.name, choice.candidate, run.module, alternative=choice.beside)
        except ModelError as error:
            fault = error
    called = run.forward is not None and run.forward.arguments is not None
    has_inputs = inputs or called or hasattr(run.module, "example_inputs")
    has_optimizer = not training or run.optimizers or hasattr(run.module, "optimizer")
    if fault is None and choice is not None and (reference.arguments or (has_inputs and has_optimizer)):
        return choice, run
    script = execute_as_script(reference, run.module, modes, quiet=quiet)
    raised = script.error if script is not None and not has_inputs else None
    if isinstance(raised, Exception) and (weights == "meta" or (weights == "small" and "meta" in str(raised))):
        # A loader draws numbers, which need values: the next way to build the model gives more tensors theirs.
        raise user_failure(raised, "Run as a script it raises")
    if script is not None and script.forward is not None:
        # A function that takes arguments, as train(rank) does, is no model where the script calls one.
        if (
            choice is None
            or fault is not None
            or (
                reference.name is None
                and inspect.isfunction(choice.candidate)
                and required_by(choice.candidate)
            )
        ):
            return _called(script.forward), script
        expected = choice.candidate if inspect.isclass(choice.candidate) else type(choice.candidate)
        if type(unwrapped(script.forward.module)).__name__ == expected.__name__:
            script.module.__dict__.setdefault("example_inputs", getattr(run.module, "example_inputs", None))
            return _called(script.forward), script
        # Of what build_model() builds, where it is of that class.
        run.forward, run.optimizers = script.forward, script.optimizers
    if fault is not None:
        if script is not None:
            fault.hint = " ".join(filter(None, [why_no_forward(script), fault.hint]))
        raise fault
    assert choice is not None
    if script is not None:
        run.error = script.error
    return choice, run


def _called(forward: FirstForward) -> ChosenModel:
    return ChosenModel(name=forward.name, candidate=forward.module, notes=(forward.message,))


def _build(reference: Reference, choice: ChosenModel, module: ModuleType) -> tuple[Module, bool]:
    """Return the model as an ``nn.Module``, and whether it is a plain function of tensors."""
    import torch

    name, candidate = choice.name, choice.candidate
    if isinstance(candidate, (torch.nn.Module, torch.export.ExportedProgram)):
        if reference.arguments:
            raise ModelError(
                f"{reference.text}: {name} is built already and takes no arguments.",
                hint="Name the class or the function that builds it.",
            )
        return unwrapped(candidate), False
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
    require_fitting(reference, name, candidate, module, alternative=choice.beside)
    return _built(reference, name, candidate, module), False


def _built(reference: Reference, name: str, builder: Callable[..., object], module: ModuleType) -> Module:
    import torch

    values = values_of(reference, module)
    try:
        with no_training(f"{name}()"):
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
    """Wrap a plain function of tensors as an ``nn.Module`` with the same parameters."""
    import torch

    # static, so that the signature is the function's own: no self among the inputs' names.
    class Function(torch.nn.Module):
        forward = staticmethod(function)

    Function.__name__ = Function.__qualname__ = function.__name__
    return Function()


def call_offered(
    user: UserModel, name: str, batch: int | None, *, weights: ValuedWeights | None = None, seed: int = 1
) -> Tree:
    """Return what the file offers under a name: ``example_inputs(batch)`` called, or a variable; None without.

    Args:
        user: The model and its file.
        name: Of the function or the variable.
        batch: What a function with parameters is called with; None for its own.
        weights: Which tensors have values, in place of what the model says.
        seed: Of random ones: the same in every run, and others than the weights.

    Raises:
        InputError: The function raises.
    """
    import torch

    offered = getattr(user.module, name, None)
    if offered is None or not callable(offered):
        return offered
    weights = weights or user.weights
    with built_with(weights, user.memory_bytes):
        if weights != "meta":
            torch.manual_seed(seed)
        try:
            if batch is None:
                return offered(DEFAULT_BATCH) if required_by(offered) else offered()
            return offered(batch) if inspect.signature(offered).parameters else offered()
        except AnalyzerError:  # of those that are made here
            raise
        except Exception as error:
            raise user_failure(error, f"{name} raises", InputError) from error


def live_model(model: Module, inputs: Tree) -> UserModel:
    """Return a module in memory, with its inputs or a function that gives them, or None."""
    module, is_meta = ModuleType("live"), any(parameter.is_meta for parameter in model.parameters())
    if is_meta and not callable(inputs):  # a model without weights reads no data
        inputs = on_meta(inputs)
    if inputs is not None:
        module.example_inputs = inputs  # type: ignore[attr-defined]  # what a user's file would define
    return UserModel(
        model=model, name=type(model).__name__, module=module, weights="meta" if is_meta else "real"
    )


def path_of(user: UserModel) -> Path | None:
    """Return the file that holds the model."""
    file = getattr(user.module, "__file__", None)
    return Path(file) if file else None
