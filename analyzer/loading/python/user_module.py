"""A user's Python file or module, executed: on the import path, with its errors told by its own lines.

Up to where it trains: neither the time nor the checkpoints of a training are an analysis's to take.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType, ModuleType

from analyzer.errors import AnalyzerError, ModelError
from analyzer.loading.dependencies import is_library
from analyzer.loading.model_reference import Reference
from analyzer.loading.python.model_libraries import LIBRARIES
from analyzer.loading.python.source_lines import line_text, shown_path
from analyzer.loading.python.user_source.kept_executions import LOADED_MARK, forget_user_modules
from analyzer.loading.python.user_source.training_loops import TrainingLoop, before_training

# What urllib, requests and huggingface_hub say of a machine without a network.
_NO_NETWORK = re.compile(
    r"URLError|HTTPError|ConnectionError|ConnectTimeout|internet connection|couldn't connect|Max retries|"
    r"offline mode"
)
_OWN_FOLDER = str(Path(__file__).resolve().parent.parent.parent) + os.sep
_SECONDS_UNTIL_TOLD = 5.0  # that a file takes to execute
# What PyTorch says where there is no CUDA (torch/cuda/__init__.py, torch/serialization.py).
NO_CUDA = re.compile(
    r"not compiled with CUDA|not linked with support for cuda|NVIDIA driver|No CUDA GPUs|"
    r"deserialize object on a CUDA device"
)


def home_folder(reference: Reference) -> str:
    """The folder that comes first on the import path: the file's own, or the working folder for a module.

    Empty of a configuration, whose folder's code is not run.
    """
    if reference.kind == "configuration":
        return ""
    return str(reference.path.resolve().parent) if reference.path else os.getcwd()


class _LoaderUntilTraining(SourceFileLoader):
    """Loads a file of the user's up to the statement that trains, and notes where that is."""

    def __init__(self, name: str, path: str, loops: list[TrainingLoop]) -> None:
        super().__init__(name, path)
        self.loops = loops

    def get_code(self, fullname: str) -> CodeType | None:
        """The file's code; nothing of it is kept in ``__pycache__`` where a part is left out."""
        path = self.get_filename(fullname)
        cut = before_training(self.get_data(path), path)
        if cut is None:
            return super().get_code(fullname)
        tree, line = cut
        self.loops.append(TrainingLoop(file=shown_path(path), line=line, text=line_text(path, line)))
        return compile(tree, path, "exec", dont_inherit=True)


class _FinderUntilTraining(MetaPathFinder):
    """Finds modules as Python's own finder does, and has those of the user's loaded up to where they train."""

    def __init__(self) -> None:
        self.loops: list[TrainingLoop] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As ``PathFinder.find_spec``."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and spec.origin is not None:
            file = os.path.abspath(spec.origin)
            if not is_library(file):
                spec.loader = _LoaderUntilTraining(fullname, spec.origin, self.loops)
        return spec

    def loader(self, name: str, path: Path) -> SourceFileLoader:
        """A loader of this file."""
        return _LoaderUntilTraining(name, str(path), self.loops)


@contextmanager
def importable(
    folder: str, kept: Mapping[str, ModuleType] = MappingProxyType({})
) -> Iterator[_FinderUntilTraining]:
    """Puts a folder first on the import path, and forgets its modules before, so that edits are seen.

    Args:
        folder: It; empty for none.
        kept: Modules of the user's that stay as they were executed.

    Yields:
        What finds modules inside the block, and knows where their execution was stopped.
    """
    forget_user_modules()
    before = set(sys.modules)
    sys.modules.update(kept)
    first = [folder] if folder else []
    sys.path[:0] = first
    finder = _FinderUntilTraining()
    # In the place of Python's own: built-in modules come before both.
    place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(place, finder)
    try:
        yield finder
    finally:
        sys.meta_path.remove(finder)
        for name in first:
            sys.path.remove(name)
        for name in set(sys.modules) - before:
            module = sys.modules[name]
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and not is_library(os.path.abspath(file)):
                vars(module)[LOADED_MARK] = True


def executed(reference: Reference, finder: _FinderUntilTraining) -> ModuleType:
    """The file or module of a reference, run as an import would, up to where it trains.

    Args:
        reference: It.
        finder: Of ``importable``.

    Raises:
        ModelError: It cannot be found or read, or raises.
    """
    with _told_if_slow():
        return _import_module(reference) if reference.module is not None else _run_file(reference, finder)


@contextmanager
def _told_if_slow() -> Iterator[None]:
    """Tells on standard error which line of the user's is at work where a block takes long."""
    thread = threading.get_ident()

    def tell() -> None:
        at = _module_level_at_work(sys._current_frames().get(thread))  # noqa: SLF001  # Python's own way to it
        if at is None:
            return
        file, line = at
        print(
            f"executing {shown_path(file)} takes long: line {line} of its module level is at work "
            f"(`{line_text(file, line)}`). What the model does not need can stand under "
            '`if __name__ == "__main__":`.',
            file=sys.stderr,
            flush=True,
        )

    timer = threading.Timer(_SECONDS_UNTIL_TOLD, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # no thread is left where a process is forked


def _module_level_at_work(frame: FrameType | None) -> tuple[str, int] | None:
    """File and line of the outermost module level of the user's that we execute."""
    found = None
    while frame is not None and not frame.f_code.co_filename.startswith(_OWN_FOLDER):
        code = frame.f_code
        if code.co_name == "<module>" and not is_library(code.co_filename):
            found = (code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return found


def _run_file(reference: Reference, finder: _FinderUntilTraining) -> ModuleType:
    assert reference.path is not None
    path = reference.path.resolve()
    # A file called torch.py or json.py must not stand in for the library of that name.
    name = path.stem if path.stem not in sys.modules and path.stem.isidentifier() else f"model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=finder.loader(name, path))
    if spec is None or spec.loader is None:
        raise ModelError(f"Python cannot import {path.name}.")
    module = importlib.util.module_from_spec(spec)
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
            return _in_its_package(reference, path, error)
        raise user_failure(error, f"{reference.text} raises while it is imported") from error
    return module


def _in_its_package(reference: Reference, path: Path, error: ImportError) -> ModuleType:
    """The file as a module of the package that it lies in, as its relative imports ask for."""
    root = path.parent.parent
    while (root / "__init__.py").exists():
        root = root.parent
    parts = path.relative_to(root).with_suffix("").parts
    if not all(part.isidentifier() for part in parts) or _is_another_package(parts[0], root):
        raise user_failure(error, f"{reference.text} raises while it is imported") from error
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module(".".join(parts))
    except (Exception, SystemExit) as failure:
        raise user_failure(failure, f"{reference.text} raises while it is imported") from failure
    finally:
        sys.path.remove(str(root))


def _is_another_package(name: str, root: Path) -> bool:
    """Whether a package of this name, in another folder, is imported already."""
    package = sys.modules.get(name)
    return package is not None and str(root / name) not in list(getattr(package, "__path__", ()))


def _import_module(reference: Reference) -> ModuleType:
    assert reference.module is not None
    try:
        return importlib.import_module(reference.module)
    except ModuleNotFoundError as error:
        library = LIBRARIES.get(reference.module)
        if library is not None and error.name == reference.module:
            raise ModelError(
                f"{reference.text}: {error.name} is not installed.", hint=f"pip install {library.install}"
            ) from error
        if error.name and reference.module.startswith(error.name):
            raise ModelError(
                f"No module named {reference.module}.",
                hint="Run from the folder that holds the package, or install the package.",
            ) from error
        raise user_failure(error, f"{reference.module} raises while it is imported") from error
    except (Exception, SystemExit) as error:
        raise user_failure(error, f"{reference.module} raises while it is imported") from error


def user_failure(error: BaseException, what: str, kind: type[AnalyzerError] = ModelError) -> AnalyzerError:
    """An error of the user's code with the user's own line in it; an error of ours as it is."""
    if isinstance(error, AnalyzerError):
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_library(frame.filename)]
    where = ""
    if frames:
        frame = frames[-1]
        text = line_text(frame.filename, frame.lineno or 0)
        where = f" ({shown_path(frame.filename)}:{frame.lineno}: {text})"
    lines = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return kind(f"{what}{where}: {message}", hint=_what_to_do(error))


def _beside_the_script(error: FileNotFoundError) -> str | None:
    """The folder of the user's file where it holds what was looked for in the working folder."""
    name = error.filename
    if not isinstance(name, str) or os.path.isabs(name):
        return None
    for frame in traceback.extract_tb(error.__traceback__):
        if is_library(frame.filename):
            continue
        folder = os.path.dirname(os.path.abspath(frame.filename))
        if os.path.exists(os.path.join(folder, name)):
            return folder
    return None


def _what_to_do(error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        return f"Install what provides {error.name!r} into the environment that runs analyze."
    if isinstance(error, FileNotFoundError):
        beside = _beside_the_script(error)
        if beside is not None:
            return f"It lies beside the script: go to {beside} and run analyze there."
        return (
            f"Relative paths start in the working folder ({os.getcwd()}): run from the folder that holds it, "
            "or put a small file of the same form there (what is counted from it, such as a vocabulary, is "
            "then the small file's). Trained weights are not needed here: build_model() may leave them out."
        )
    if isinstance(error, SystemExit) and any(
        frame.f_code.co_filename.endswith("argparse.py") for frame, _ in traceback.walk_tb(error.__traceback__)
    ):
        return (
            "The script sees an empty command line: give its arguments defaults, or parse them under "
            "`if __name__ == '__main__':`."
        )
    if isinstance(error, SystemExit):
        return "Put what the script does under `if __name__ == '__main__':`; define the model outside of it."
    if isinstance(error, ImportError) and "relative import" in str(error):
        return (
            "The file is part of a package: go to the folder that holds the package and write "
            "package.module:Name in place of the path."
        )
    if _NO_NETWORK.search(f"{type(error).__name__}: {error}"):
        if any("datasets" in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
            return (
                "Nothing could be downloaded. Data are not needed here: load them under "
                "`if __name__ == '__main__':`, or put tensors of the same shape in their place."
            )
        return (
            "Nothing could be downloaded. Trained weights are not needed here: build the model from its "
            "configuration (transformers: AutoModel.from_config), or without pretrained weights."
        )
    if NO_CUDA.search(str(error)):
        return (
            "There is no CUDA device here: let the model be built on the CPU "
            "(map_location='cpu' for a checkpoint), and ask torch.cuda under `if torch.cuda.is_available():`. "
            "The GPU is predicted."
        )
    return None
