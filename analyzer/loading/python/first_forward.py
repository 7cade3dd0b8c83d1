"""Run a user's file up to the first forward of its model, and no further.

The file runs in a thread of its own. The first call of its outermost module hands that module over, with the
inputs of the call, and ends the thread; so does whatever would train (``backward``, an optimizer's step). A
script that catches the end is stopped at its next call, and one that takes too long is left behind.
"""

from __future__ import annotations

import contextvars
import ctypes
import dis
import inspect
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
)
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TextIO

from analyzer.errors import ModelError
from analyzer.loading.dependencies import is_library
from analyzer.loading.python.source_lines import line_text, shown_path
from analyzer.loading.torch_private import replaced, tree_leaves, tree_map

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

NOTICE_S = 5.0
"""A file that takes longer is reported on standard error, with the line at work."""
LIMIT_S = 300.0
"""A file may take so long to reach its first forward."""

# A thread that has been ended gets so long to leave its blocks.
_LEAVING_S, _STEP_S = 2.0, 0.05
# Steps of training that are left out before a model that is waited for by its name.
_MOST_STEPS = 8
# Characters of a script's output that are shown.
_MOST_OUTPUT = 2**16

_ONE_RUN = threading.Lock()
# The run that a thread executes code of, as `run`; whether it is inside a call of a module, as `call`.
_THREAD = threading.local()
# An audit hook cannot be removed: one serves every run.
_HOOKED = threading.Event()


def one_run() -> AbstractContextManager[object]:
    """Return a block for one thread at a time: what a run patches, and its imports, are of the whole process.

    A script that begins an analysis of its own is inside such a block already.
    """
    return _ONE_RUN if getattr(_THREAD, "run", None) is None else nullcontext()


class _Ended(BaseException):
    """Ends a script; no ``except Exception`` of its own catches it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstForward:
    """The first call of a script's model.

    Attributes:
        module: The outermost module that is called.
        name: The variable that holds it where it is called; its class's name where none does.
        arguments, keywords: Of the call; None and empty where ``forward`` itself was called and has assigned
            one of them anew.
        file, line: Of the user's code that calls it; empty and 0 where a library does.
    """

    module: Module
    name: str
    arguments: tuple[Any, ...] | None
    keywords: dict[str, Any]
    file: str
    line: int

    @property
    def message(self) -> str:
        """Say where the file was stopped."""
        where = f" (line {self.line} of {shown_path(self.file)}: `{line_text(self.file, self.line)}`)"
        return f"The script was executed up to the first forward of {self.name}{where if self.line else ''}."


@dataclass(slots=True, eq=False)
class ScriptRun:
    """A file that is being executed, and its first forward.

    Args:
        wanted: Name of the variable or the class whose forward ends the run; None for any.
        quiet: Whether what it prints is left out.
        module: The file, as far as it was executed.

    Attributes:
        forward: Its first forward; None where it has none.
        optimizers: Those that it has built.
        trains: Whether it was ended where it would have trained.
        error: What it raised.
    """

    wanted: str | None
    quiet: bool = False
    module: ModuleType = field(default_factory=lambda: ModuleType("unnamed"))
    forward: FirstForward | None = None
    optimizers: list[Optimizer] = field(default_factory=list)
    trains: bool = False
    error: BaseException | None = None
    _steps: int = 0
    _others: tuple[threading.Thread, ...] = ()
    _thread: int = 0
    _ended: bool = False
    _another: FirstForward | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _process: int = field(default_factory=os.getpid)

    def __call__(self, execute: Callable[[], object]) -> None:
        """Execute, until it returns, raises, or calls its model; ``error`` is what it raises.

        Raises:
            ModelError: It takes too long.
        """
        if not _HOOKED.is_set():
            sys.addaudithook(_refuse_writing)
            _HOOKED.set()
        self._others = tuple(threading.enumerate())
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._target, execute), daemon=True)
        shown = sys.stderr
        output: Any = _Limited(shown, 0 if self.quiet else _MOST_OUTPUT)
        with self._patched(), redirect_stdout(output), redirect_stderr(output):
            thread.start()
            self._thread = thread.ident or 0
            try:
                self._wait(shown)
            except BaseException:  # the user's own interrupt too: nothing may go on in the background
                self._over.set()
                raise
            finally:
                # A block of the script may swallow the first end.
                for _ in range(round(_LEAVING_S / _STEP_S)):
                    thread.join(_STEP_S)
                    if thread.is_alive() and not self._ended:
                        _raise_in(self._thread)
        self.forward = self.forward or self._another

    def _wait(self, shown: TextIO) -> None:
        """Wait for the end of the run, and report the line at work where that takes long."""
        if self._over.wait(NOTICE_S):
            return
        file, line = _at_work(self._thread)
        print(
            f"executing {shown_path(file)} takes long: line {line} is at work (`{line_text(file, line)}`)",
            file=shown,
            flush=True,
        )
        if self._over.wait(max(0.0, LIMIT_S - NOTICE_S)):
            return
        file, line = _at_work(self._thread)
        raise ModelError(
            f"No model was called within {LIMIT_S:.0f} s: line {line} of {shown_path(file)} is at work "
            f"(`{line_text(file, line)}`).",
            hint="Name the class or a function that builds the model after a colon: model.py:Net.",
        )

    def _target(self, execute: Callable[[], object]) -> None:
        _THREAD.run = self
        try:
            execute()
        except _Ended:
            pass
        except BaseException as error:  # SystemExit too; the caller words it
            self.error = None if self._over.is_set() else error
        finally:
            self._over.set()

    def _end(self) -> None:
        """End the thread; one that has caught that before waits for the end of the process."""
        self._over.set()
        if getattr(_THREAD, "ended", None) is self:
            threading.Event().wait()
        _THREAD.run = _THREAD.ended = self
        if threading.get_ident() != self._thread:
            _raise_in(self._thread)
        else:
            self._ended = True
        raise _Ended

    def _is_watched(self) -> bool:
        """Return whether the thread at work is the script's, or began after it."""
        return threading.current_thread() not in self._others

    def _goes_on(self) -> bool:
        """End the run where it would train; leave out a few steps of others before a model that is named."""
        if not self._is_watched():
            return True
        if os.getpid() != self._process:
            os._exit(0)  # a process that the script forked trains nothing either
        self._steps += 1
        if self.wanted is None or self._steps > _MOST_STEPS:
            self.trains = True
            self._end()
        return False

    @contextmanager
    def _patched(self) -> Iterator[None]:  # noqa: C901  # one function for each thing that is patched
        """Have modules, optimizers and gradients report here inside the block."""
        import torch

        save, start = torch.save, BaseProcess.start
        call, initialise, exit_process = torch.nn.Module.__call__, torch.optim.Optimizer.__init__, os._exit

        def called(module: Module, *arguments: Any, **keywords: Any) -> Any:
            if not self._is_watched() or torch.utils.data.get_worker_info() is not None:
                return call(module, *arguments, **keywords)  # a transform in a loader's process, say
            if os.getpid() != self._process:
                exit_process(0)  # a process that the script forked trains nothing either
            outermost = not getattr(_THREAD, "call", False)
            if outermost or self.wanted is not None:
                self._look_at(module, arguments, keywords)
            if not outermost:
                return call(module, *arguments, **keywords)
            _THREAD.call = True
            try:
                return call(module, *arguments, **keywords)
            finally:
                _THREAD.call = False

        def initialised(optimizer: Optimizer, *arguments: Any, **keywords: Any) -> None:
            initialise(optimizer, *arguments, **keywords)
            self.optimizers.append(optimizer)

        def exits(status: int) -> None:
            if os.getpid() != self._process:
                exit_process(status)
            raise SystemExit(status)

        def saved(*arguments: Any, **keywords: Any) -> None:
            _refuse_writing("open", ("", "w", os.O_WRONLY))  # PyTorch writes its files below Python
            save(*arguments, **keywords)

        def started(process: Any) -> None:
            function = process._target or type(process).run  # noqa: SLF001  # as its own `run` reads it
            file = getattr(getattr(function, "__code__", None), "co_filename", "")
            if not file or is_library(file):
                return start(process)
            process._popen = _InThread(process)  # noqa: SLF001  # what its own `start` sets
            return None

        def exported(module: Any, args: Any = (), *_: object, **keywords: Any) -> Any:
            if not isinstance(module, torch.nn.Module):
                return module
            arguments = args if isinstance(args, tuple) else (args,)
            self._look_at(module, arguments, dict(keywords.get("kwargs") or {}))
            return module

        with ExitStack() as patches:
            for owner, name, value in (
                (torch.nn.Module, "__call__", called),
                (torch.optim.Optimizer, "__init__", initialised),
                (torch, "save", saved),
                # The first of its processes, here.
                (torch.multiprocessing, "spawn", lambda function, args=(), *_, **__: function(0, *args)),
                (BaseProcess, "start", started),
                (torch, "compile", lambda model=None, **_: (lambda it: it) if model is None else model),
                # An export calls the model by its own way, and writes a file.
                (torch.onnx, "export", exported),
                (torch.export, "export", exported),
                (threading, "excepthook", lambda _: None),
                (os, "_exit", exits),
                # Python handles signals in the main thread alone.
                (signal, "signal", lambda *_: signal.SIG_DFL),
                (sys, "stdin", io.StringIO()),
            ):
                patches.enter_context(replaced(owner, name, value))
            patches.enter_context(_training_seen(self._goes_on))
            yield

    def _look_at(self, module: Module, arguments: tuple[Any, ...] | None, keywords: dict[str, Any]) -> None:
        """End the run where this call is the one that is waited for."""
        import torch

        if self._over.is_set():
            self._end()
        user: FrameType | None = None
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # Python's own way to it
        while frame is not None:
            code = frame.f_code
            caller = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None  # "self" by any name
            if isinstance(caller, torch.nn.Module) and code.co_name == "__init__":
                return  # a model that is being built tries a part of itself
            if (
                isinstance(caller, torch.nn.Module)
                and code.co_name in ("forward", "__call__")
                and self.wanted is None
            ):
                # `model.forward(x)`: no call of the model itself is seen.
                module, (arguments, keywords) = caller, _arguments_of(frame)
                user = None
            if user is None and not is_library(frame.f_code.co_filename):
                user = frame
            frame = frame.f_back
        if any(
            isinstance(leaf, torch.Tensor) and not leaf.numel() for leaf in tree_leaves((arguments, keywords))
        ):
            return  # an empty batch is no example
        parameters = {id(parameter) for parameter in module.parameters()}
        trained = trained_by(self.optimizers)
        forward = FirstForward(
            module=module,
            name=_name_of(module, user),
            arguments=None if arguments is None else tree_map(_detached, arguments),
            keywords=tree_map(_detached, keywords),
            file=user.f_code.co_filename if user is not None else "",
            line=user.f_lineno if user is not None else 0,
        )
        if self.wanted is not None:
            fits = self.wanted in (forward.name, type(module).__name__)
        else:
            # A loss or a preparation of data has no parameters, a frozen encoder none that is trained.
            fits = bool(parameters) and (not trained or not trained.isdisjoint(parameters))
            self._another = self._another or forward
        if fits:
            self.forward = forward
            self._end()


def trained_by(optimizers: Iterable[Optimizer]) -> set[int]:
    """Return the parameters that optimizers update, by identity."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return {id(parameter) for group in groups for parameter in group["params"]}


def _arguments_of(frame: FrameType) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
    """Return the arguments and keywords of a method at work; no arguments where it has assigned one anew."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames
    count, after = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    rest = names[after : after + bool(code.co_flags & inspect.CO_VARARGS)]
    if any(
        instruction.offset < frame.f_lasti
        and instruction.opname.startswith("STORE_FAST")
        and instruction.argval in names[1 : after + len(rest)]
        for instruction in dis.get_instructions(code)
    ):
        return None, {}
    positional = [values[name] for name in names[1:count]] + [value for name in rest for value in values[name]]
    keywords = {name: values[name] for name in names[count:after]}
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keywords |= values[names[after + len(rest)]]
    return tuple(positional), keywords


def _name_of(module: Module, frame: FrameType | None) -> str:
    """Return the variable of a frame that holds a module, else the name of its class."""
    for variables in (frame.f_locals, frame.f_globals) if frame is not None else ():
        for name, value in list(variables.items()):
            if value is module and name.isidentifier() and name != "self":
                return name
    return type(module).__name__


def _detached(leaf: Any) -> Any:
    """Return a tensor that needs no gradient; of one that is but traced, zeros in its place."""
    import torch

    if not isinstance(leaf, torch.Tensor):
        return leaf
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        return torch.zeros([int(size) for size in leaf.shape], dtype=leaf.dtype)
    tensor: Tensor = leaf.detach()
    return tensor


def _at_work(thread: int) -> tuple[str, int]:
    """File and line of the innermost code of the user's that a thread executes."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # Python's own way to it
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _refuse_writing(event: str, arguments: tuple[Any, ...]) -> None:
    """End a block of a script that would write a file after the end: its ``finally``, say."""
    run: ScriptRun | None = getattr(_THREAD, "run", None)
    if run is None or not run._over.is_set():  # noqa: SLF001  # of this module
        return
    opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if opens or event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "subprocess.Popen", "os.system"):
        raise _Ended


@contextmanager
def _training_seen(goes_on: Callable[[], bool]) -> Iterator[None]:
    """Inside the block gradients, where this says so, are computed, and an optimizer's step is noted by it."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    backward = torch.autograd.backward

    def differentiated(*arguments: Any, **keywords: Any) -> None:
        if goes_on():
            backward(*arguments, **keywords)

    def note(*_: object) -> None:
        goes_on()

    hook = register_optimizer_step_pre_hook(note)
    try:
        with replaced(torch.autograd, "backward", differentiated):
            yield
    finally:
        hook.remove()


@contextmanager
def no_training(what: str) -> Iterator[None]:
    """Raise at whatever would train a model inside the block, in which ``what`` runs."""
    thread = threading.get_ident()

    def goes_on() -> bool:
        if threading.get_ident() == thread:
            raise ModelError(
                f"{what} trains the model.", hint="Return the model untrained: only its sizes count."
            )
        return True

    with _training_seen(goes_on):
        yield


def _raise_in(thread: int) -> None:
    """Have another thread end at its next instruction of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Ended))


class _InThread:
    """A process that a script starts, as a thread: what it calls is seen, in a fresh interpreter it is not."""

    def __init__(self, process: BaseProcess) -> None:
        self.returncode: int | None = None
        self._thread = threading.Thread(target=self._run, args=(process,), daemon=True)
        self._thread.start()

    def _run(self, process: BaseProcess) -> None:
        status = 1
        try:
            process.run()
            status = 0
        except _Ended:
            pass
        finally:
            self.returncode = status

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the thread as for a process."""
        self._thread.join(timeout)
        return self.returncode

    def poll(self) -> int | None:
        """Return the status; None while the thread runs."""
        return self.returncode

    def terminate(self) -> None:
        """End the thread at its next instruction of Python."""
        _raise_in(self._thread.ident or 0)

    kill = close = terminate


class _Limited:
    """A stream that passes on so many characters, and says once that it leaves out the rest."""

    def __init__(self, stream: TextIO, most: int) -> None:
        self._stream = stream
        self._left = most

    def write(self, text: str) -> int:
        if self._left > 0:
            self._stream.write(text[: self._left])
            self._left -= len(text)
            if self._left <= 0:
                self._stream.write("\nThe rest of the script's output is left out.\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
