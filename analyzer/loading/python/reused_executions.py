"""Executions of a user's file that one analysis needs again: what stands before its first forward runs once.

Once for each way of building it: without weights, and with them, which a run needs. Nothing is cached beyond
the analysis, nor where a file that was read has changed.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError
from analyzer.loading.dependencies import Dependencies, count_as_read, is_library
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.model_weights import ValuedWeights, parameter_sizes

if TYPE_CHECKING:
    from torch import Tensor

    from analyzer.loading.python.first_forward import ScriptRun
    from analyzer.loading.python.model_choice import ChosenModel

LOADED_MARK = "_analyzer_loaded"
"""Our mark on a user's module."""

# Weights of a model that is cached alongside the one in use.
_LARGEST_CACHED_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedExecution:
    """An executed file, with all that building its model once more takes.

    Attributes:
        run: Its execution, with its first forward.
        choice: Its model, as it was before anything was done with it.
        modules: The user's modules, by name in ``sys.modules``.
        random_state: Of PyTorch's generator when the file had been executed.
    """

    run: ScriptRun
    choice: ChosenModel
    modules: Mapping[str, ModuleType]
    random_state: Tensor

    def afresh(self) -> ChosenModel:
        """Return the model as the file made it, in the place of the one that has been used."""
        import torch

        torch.set_rng_state(self.random_state)
        if not isinstance(self.choice.candidate, torch.nn.Module):
            return self.choice
        candidate = copy.deepcopy(self.choice.candidate)
        vars(self.run.module)[self.choice.name.partition(".")[0]] = candidate
        return replace(self.choice, candidate=candidate)


_Request = tuple[Reference, ValuedWeights, frozenset[str], str]


@dataclass(slots=True)
class _CachedAnswer:
    request: _Request
    result: CachedExecution | AnalyzerError
    dependencies: Dependencies


@dataclass(slots=True)
class _Executions:
    """Those of one analysis; ``weights_built`` says whether there were tensors with values among them."""

    answers: list[_CachedAnswer] = field(default_factory=list)
    weights_built: bool = False


_CACHED: ContextVar[_Executions | None] = ContextVar("cached executions", default=None)


@contextmanager
def executions_cached() -> Iterator[None]:
    """Inside the block a file is executed once for each way of building its model; no weights outlive it."""
    if _CACHED.get() is not None:
        yield
        return
    executions = _Executions()
    token = _CACHED.set(executions)
    try:
        yield
    finally:
        _CACHED.reset(token)
        weights_built = executions.weights_built
        del executions, token
        if weights_built:
            # Modules refer to themselves, by hooks and closures: only a search for garbage frees their weights.
            forget_user_modules()
            gc.collect()


def forget_user_modules() -> None:
    """Take the modules that were executed for an analysis out of ``sys.modules``."""
    # A tuple: a module's __getattr__ may import others while we look at it.
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if getattr(module, LOADED_MARK, False) and isinstance(file, str):
            del sys.modules[name]


def are_cached(weights: ValuedWeights) -> bool:
    """Return whether executions are cached here; note one that makes weights."""
    executions = _CACHED.get()
    if executions is not None:
        executions.weights_built |= weights == "real"
    return executions is not None


def _request(reference: Reference, *, weights: ValuedWeights, inputs: Collection[str]) -> _Request:
    return reference, weights, frozenset(inputs), os.getcwd()


def cached_execution(
    reference: Reference, *, weights: ValuedWeights, inputs: Collection[str]
) -> CachedExecution | None:
    """Return the cached execution of the same request, as long as all that was read is as it was.

    Raises:
        AnalyzerError: The execution failed, and would again.
    """
    cached = executions.answers if (executions := _CACHED.get()) else []
    request = _request(reference, weights=weights, inputs=inputs)
    for item in [item for item in cached if item.request == request]:
        if not item.dependencies.unchanged():
            cached.remove(item)
            continue
        count_as_read(item.dependencies)
        if isinstance(item.result, AnalyzerError):
            raise item.result
        return item.result
    return None


def store(
    reference: Reference,
    result: CachedExecution | AnalyzerError | None,
    dependencies: Dependencies,
    *,
    weights: ValuedWeights,
    inputs: Collection[str],
) -> None:
    """Cache an execution, or why it failed, for the rest of the analysis."""
    executions = _CACHED.get()
    if executions is not None and result is not None:
        request = _request(reference, weights=weights, inputs=inputs)
        executions.answers.append(_CachedAnswer(request=request, result=result, dependencies=dependencies))


def execution_of(run: ScriptRun, choice: ChosenModel, random_state: Tensor) -> CachedExecution | None:
    """Return a copy to cache of a file just executed; None of a model that is too large or cannot be copied."""
    import torch

    candidate: Any = choice.candidate
    if isinstance(candidate, torch.nn.Module):
        if "." in choice.name or (
            _on_memory(candidate) and parameter_sizes(candidate.parameters())[1] > _LARGEST_CACHED_BYTES
        ):
            return None
        copied = None
        # Some tensors and some users' objects cannot be copied; PyTorch warns of its own trees.
        with suppress(Exception), warnings.catch_warnings(action="ignore", category=FutureWarning):
            copied = copy.deepcopy(candidate)
        if copied is None:
            return None
        candidate = copied
    own = {
        name: item
        for name, item in tuple(sys.modules.items())
        if isinstance(file := getattr(item, "__file__", None), str) and not is_library(os.path.abspath(file))
    }
    return CachedExecution(
        run=run,
        choice=replace(choice, candidate=candidate),
        modules=own,
        random_state=random_state,
    )


def _on_memory(model: Any) -> bool:
    return any(not parameter.is_meta for parameter in model.parameters())
