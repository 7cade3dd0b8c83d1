"""Execute a user's Python file or module: on the import path, with its errors reported by its own lines.

One analysis needs an execution again: what stands before the first forward runs once for each way of building
the model, without weights and with them, which a run needs. Nothing is cached beyond the analysis, nor where a
file that was read has changed.
"""

from __future__ import annotations

import copy
import gc
import importlib
import importlib.util
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, ModelError
from analyzer.loading.dependencies import Dependencies, count_as_read, is_library
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.first_forward import ScriptRun
from analyzer.loading.python.hugging_face import LIBRARIES
from analyzer.loading.python.model_weights import ValuedWeights, parameter_sizes
from analyzer.loading.python.source_lines import at_line, first_line, shown_path

if TYPE_CHECKING:
    from torch import Tensor

    from analyzer.loading.python.model_choice import ChosenModel

# What urllib, requests and huggingface_hub say of a machine without a network.
_NO_NETWORK = re.compile(
    r"URLError|HTTPError|ConnectionError|ConnectTimeout|internet connection|couldn't connect|Max retries|"
    r"offline mode"
)
# What PyTorch says where there is no CUDA (torch/cuda/__init__.py, torch/serialization.py).
NO_CUDA = re.compile(
    r"not compiled with CUDA|not linked with support for cuda|NVIDIA driver|No CUDA GPUs|"
    r"deserialize object on a CUDA device"
)


def home_folder(reference: Reference) -> str:
    """Return folder that comes first on the import path: the file's own, or the working folder for a module.

    Empty of a configuration, whose folder's code is not run.
    """
    if reference.kind == "configuration":
        return ""
    return str(reference.path.resolve().parent) if reference.path else os.getcwd()


@contextmanager
def importable(folder: str, executed_before: Mapping[str, ModuleType] = MappingProxyType({})) -> Iterator[None]:
    """Put a folder first on the import path; forget modules but ``executed_before``, so that edits are seen."""
    forget_user_modules()
    before = set(sys.modules)
    sys.modules.update(executed_before)
    first = [folder] if folder else []
    sys.path[:0] = first
    try:
        yield
    finally:
        for name in first:
            sys.path.remove(name)
        for name in set(sys.modules) - before:
            module = sys.modules[name]
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and not is_library(os.path.abspath(file)):
                vars(module)[LOADED_MARK] = True


Modes = Callable[[], AbstractContextManager[object]]
"""A block that the user's code runs in; PyTorch's are of one thread."""


def execute(reference: Reference, modes: Modes, *, quiet: bool) -> ScriptRun:
    """Import the file or module of a reference, up to the first forward of what it names, else of any model."""
    modules: list[ModuleType] = []
    run = ScriptRun(reference.name, quiet=quiet)

    def imported() -> None:
        with modes():
            if reference.module is not None:
                modules.append(_import_module(reference))
            else:
                _run_file(reference, modules)

    run(imported)
    if run.error is not None and run.forward is None:
        raise run.error
    if modules:
        run.module = modules[-1]
    return run


def execute_as_script(
    reference: Reference, imported: ModuleType, modes: Modes, *, quiet: bool
) -> ScriptRun | None:
    """Run a file as ``__main__``, as ``execute`` imports it; None where that is what the import did."""
    file = getattr(imported, "__file__", None)
    try:
        source = Path(file).read_bytes() if file else b""
    except OSError:
        source = b""
    if not file or b"__main__" not in source:
        return None
    module = ModuleType("__main__")
    vars(module).update(__file__=file, __package__=imported.__name__.rpartition(".")[0] or None)
    before = sys.modules["__main__"]
    run = ScriptRun(reference.name, quiet=quiet, module=module)

    def executed_as_script() -> None:
        with modes():
            exec(compile(source, file, "exec", dont_inherit=True), vars(module))  # as Python does

    sys.modules["__main__"] = module
    try:
        run(executed_as_script)
    finally:
        sys.modules["__main__"] = before
    return run


def why_no_forward(run: ScriptRun) -> str:
    """Say why a script did not reach a forward."""
    if run.error is not None:
        error = user_failure(run.error, "Run as a script it raises")
        return f"{error.message.rstrip('.')}." + (f" {error.hint}" if isinstance(run.error, SystemExit) else "")
    return "Run as a script it calls no model" + (" before it trains." if run.trains else ".")


def _run_file(reference: Reference, modules: list[ModuleType]) -> None:
    """Execute a file as an import does; its module is appended before, as it may be ended on the way."""
    assert reference.path is not None
    path = reference.path.resolve()
    # A file called torch.py or json.py must not stand in for the library of that name.
    name = path.stem if path.stem not in sys.modules and path.stem.isidentifier() else f"model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"Python cannot import {path.name}.")
    module = importlib.util.module_from_spec(spec)
    modules.append(module)
    sys.modules[name] = module  # before it runs, as import does: dataclasses and pickle look modules up by name
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        raise ModelError(
            f"{shown_path(error.filename or path)} is not valid Python: line {error.lineno}: {error.msg}."
        ) from error
    except (Exception, SystemExit) as error:  # a script may end itself: sys.exit, argparse
        del sys.modules[name]
        if isinstance(error, ImportError) and "no known parent package" in str(error):
            modules.append(_in_its_package(reference, path, error))
            return
        raise user_failure(error, f"{reference.text} raises while it is imported") from error


def _in_its_package(reference: Reference, path: Path, error: ImportError) -> ModuleType:
    """Return the file as a module of the package that it lies in, as its relative imports ask for."""
    root = path.parent.parent
    while (root / "__init__.py").exists():
        root = root.parent
    parts = path.relative_to(root).with_suffix("").parts
    package = sys.modules.get(parts[0])  # one of this name, in another folder, may be imported already
    another = package is not None and str(root / parts[0]) not in list(getattr(package, "__path__", ()))
    if another or not all(part.isidentifier() for part in parts):
        raise user_failure(error, f"{reference.text} raises while it is imported") from error
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module(".".join(parts))
    except (Exception, SystemExit) as failure:
        raise user_failure(failure, f"{reference.text} raises while it is imported") from failure
    finally:
        sys.path.remove(str(root))


def _import_module(reference: Reference) -> ModuleType:
    assert reference.module is not None
    try:
        return importlib.import_module(reference.module)
    except (Exception, SystemExit) as error:
        missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        if reference.module in LIBRARIES and missing == reference.module:
            raise ModelError(
                f"{reference.text}: {missing} is not installed.", hint=f"pip install {missing}"
            ) from error
        if missing and reference.module.startswith(missing):
            raise ModelError(
                f"No module named {reference.module}.",
                hint="Run from the folder that holds the package, or install the package.",
            ) from error
        raise user_failure(error, f"{reference.module} raises while it is imported") from error


def user_failure(error: BaseException, what: str, kind: type[AnalyzerError] = ModelError) -> AnalyzerError:
    """Return an error of the user's code with the user's own line in it; an error of ours as it is."""
    if isinstance(error, AnalyzerError):
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_library(frame.filename)]
    where = at_line((frames[-1].filename, frames[-1].lineno or 0) if frames else None)
    text = f": {first_line(error)}" if str(error).strip() else ""
    return kind(f"{what}{where}: {type(error).__name__}{text}", hint=_what_to_do(error))


def _what_to_do(error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        return f"Install what provides {error.name!r} into the environment that runs analyze."
    if isinstance(error, FileNotFoundError):
        return (
            f"Relative paths start in the working folder ({os.getcwd()}): run analyze from the folder that "
            "holds it; trained weights are not needed."
        )
    if isinstance(error, SystemExit):
        frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        if any(file.endswith("argparse.py") for file in frames):
            return "Give the script its arguments after --, as in `analyze train.py -- --epochs 1`."
        return "Put what the script does under `if __name__ == '__main__':`; define the model outside of it."
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "Go to the folder that holds the package and write package.module:Name in place of the path."
    if _NO_NETWORK.search(f"{type(error).__name__}: {error}"):
        return (
            "Nothing could be downloaded; trained weights and data are not needed: build the model from its "
            "configuration (transformers: AutoModel.from_config), and put tensors in the place of data."
        )
    if NO_CUDA.search(str(error)):
        return "There is no CUDA device here: build the model on the CPU (map_location='cpu' for a checkpoint)."
    return None


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


Request = tuple[Reference, ValuedWeights, frozenset[str], str]
"""A model, which of its tensors have values, its inputs by name, and the working folder."""


@dataclass(slots=True)
class _Executions:
    """Those of one analysis; ``weights_built`` says whether there were tensors with values among them."""

    answers: list[tuple[Request, CachedExecution | AnalyzerError, Dependencies]] = field(default_factory=list)
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
    for name, module in tuple(sys.modules.items()):
        # As it stands: a module's __getattr__ may import others, PyTorch's one that warns.
        values = getattr(module, "__dict__", {})
        if values.get(LOADED_MARK, False) and isinstance(values.get("__file__"), str):
            del sys.modules[name]


def are_cached(weights: ValuedWeights) -> bool:
    """Return whether executions are cached here; note one that makes weights."""
    executions = _CACHED.get()
    if executions is not None:
        executions.weights_built |= weights == "real"
    return executions is not None


def cached_execution(request: Request) -> CachedExecution | None:
    """Return the cached execution of the same request, as long as all that was read is as it was."""
    cached = executions.answers if (executions := _CACHED.get()) else []
    for item in [item for item in cached if item[0] == request]:
        _, result, dependencies = item
        if not dependencies.unchanged():
            cached.remove(item)
            continue
        count_as_read(dependencies)
        if isinstance(result, AnalyzerError):
            raise result
        return result
    return None


def store(request: Request, result: CachedExecution | AnalyzerError | None, dependencies: Dependencies) -> None:
    """Cache an execution, or why it failed, for the rest of the analysis."""
    executions = _CACHED.get()
    if executions is not None and result is not None:
        executions.answers.append((request, result, dependencies))


def execution_of(run: ScriptRun, choice: ChosenModel, random_state: Tensor) -> CachedExecution | None:
    """Return a copy to cache of a file just executed; None of a model that is too large or cannot be copied."""
    import torch

    candidate: Any = choice.candidate
    if isinstance(candidate, torch.nn.Module):
        in_memory = any(not parameter.is_meta for parameter in candidate.parameters())
        large = in_memory and parameter_sizes(candidate.parameters())[1] > _LARGEST_CACHED_BYTES
        if "." in choice.name or large:
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
        run=run, choice=replace(choice, candidate=candidate), modules=own, random_state=random_state
    )
