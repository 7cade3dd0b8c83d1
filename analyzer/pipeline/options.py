"""Options of an analysis, checked where a room above ``options`` knows more; and the question in a record."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analyzer.errors import UsageError
from analyzer.loading.input_values import read_input_data
from analyzer.loading.model_reference import parse_argument, parse_reference
from analyzer.loading.python.input_spec import InputSpec, parse_input
from analyzer.loading.python.source_lines import repository_root, shown_path
from analyzer.option_kinds import AUTO, Command, one_of
from analyzer.options import Options, keywords_of, require_keywords
from analyzer.ort.kernels import find_release
from analyzer.precision import INTEGER_FORMS, PRECISIONS
from analyzer.reading import parse_limits
from analyzer.record.invocation import Invocation, amended, written

# No machine has so much memory: options may come with a stranger's model.
_MOST_ELEMENTS = 2**48


def make_options(**given: Any) -> Options:
    """Check what a user gave; every keyword is a long option, None is one that was left out.

    Raises:
        TypeError: No such option.
        UsageError: A value that cannot be right.
    """
    require_keywords("analyze", given, (*keywords_of("run"), "check"))
    options: Any = Options.of(given)  # with texts where a room above `options` converts them
    precision, release = options.precision, options.onnxruntime
    if options.opset == AUTO:
        raise UsageError(
            "--opset auto: an analysis is of one opset.", hint="`analyze apply MODEL --opset auto` chooses one."
        )
    if precision:
        precision = one_of(precision, PRECISIONS, "--precision")
    if options.training and precision in INTEGER_FORMS:
        raise UsageError(
            f"--precision {precision}: a training step is made of floats; weights are quantised afterwards.",
            hint="Leave out --training, or choose fp16 or bf16.",
        )
    if options.training and options.state and options.has_state:
        raise UsageError(
            "--state: a training step has no other state than its weights and the optimizer's.",
            hint="Leave out --state or --training.",
        )
    names = [name.lower() for name in options.gpus or ()]
    if "none" in names and len(names) > 1:
        raise UsageError("--gpu none cannot stand beside other GPUs.")
    limits = parse_limits(options.limits)
    checked: Options = options.replace(
        inputs=_inputs(options, limits.memory),
        arguments=tuple(map(parse_argument, options.arguments)),
        gpus=() if names == ["none"] else options.gpus,
        precision=precision,
        state=tuple(map(_state_pair, options.state or ())) if options.has_state else None,
        onnxruntime=find_release(release) if release else None,
        limits=limits,
    )
    return checked


def _inputs(options: Options, memory_bytes: int) -> tuple[InputSpec, ...]:
    """Return the inputs that ``--input`` and ``--input-data`` give."""
    texts: tuple[Any, ...] = options.inputs
    given = tuple(map(_input, texts))
    if options.input_data is None:
        return given
    stored = read_input_data(options.input_data, memory_bytes)
    twice = {spec.name for spec in given} & {spec.name for spec in stored}
    if twice:
        raise UsageError(
            f"--input gives {min(twice)}, and so does {options.input_data}.",
            hint="Give each input in one place.",
        )
    return (*given, *stored)


def _input(text: str) -> InputSpec:
    spec = parse_input(text)
    if math.prod(spec.sizes(1)) > _MOST_ELEMENTS:
        raise UsageError(f"--input {text}: no machine holds so many elements.", hint="Give smaller sizes.")
    return spec


def _state_pair(text: str) -> tuple[str, str]:
    past, equals, present = text.partition("=")
    if not equals or not past.strip() or not present.strip():
        raise UsageError(
            f"--state {text}: expected IN=OUT.",
            hint="For example --state past_0=present_0; the names are ONNX's.",
        )
    return past.strip(), present.strip()


def invocation_of(model: object, given: Mapping[str, Any], *, default_gpu: str | None) -> Invocation:
    """Return the record's copy of the question.

    ``default_gpu`` stands in for one that was not named, where it is not this machine's own.
    """
    command: Command = "check" if given.get("check") else "run"
    # An ``nn.Module`` or a graph in memory has no name that a command line could load it by.
    named = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    shown = named or None
    if named and (reference := parse_reference(named)).path is not None:
        shown = shown_path(reference.path) + (f":{reference.called}" if reference.name else "")
    return Invocation(
        command=command,
        model=shown,
        options=written(command, given, path_shower(named)),
        stand_ins={} if default_gpu is None else {"gpu": (default_gpu,)},
    )


def replayed_invocation(before: Invocation | None, given: Mapping[str, Any]) -> Invocation | None:
    """Return the question of a record decided anew: its own with the options given now.

    A number of threads was meant for the record's own CPU and does not hold for another.
    """
    if before is None:
        return None
    dropped = ("threads",) if given.get("cpu") else ()
    return amended(before, written("render", given, path_shower()), without=dropped)


def path_shower(model: str | None = None) -> Callable[[str], str]:
    """Return a path relative to the folder of MODEL's own path, absolute where it is elsewhere.

    Without a MODEL at hand it is the folder of the repository at hand.
    """
    # Links are resolved on both sides, or a path below a linked folder would climb out of its repository.
    path = parse_reference(model).path if model else Path.cwd() / "any"
    root = repository_root(os.path.dirname(os.path.realpath(path))) if path else None

    def show(given: str) -> str:
        relative = os.path.relpath(os.path.realpath(given), root or os.getcwd())
        # With slashes on every system: the record is part of what must not differ between machines.
        return os.path.abspath(given) if relative.startswith("..") else relative.replace(os.sep, "/")

    return show
