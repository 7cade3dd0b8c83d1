"""What an analysis is asked for, checked once: the options of the command line and of the Python interface."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from analyzer.decision.decision_input import OBJECTIVES, Objective
from analyzer.errors import UsageError
from analyzer.isolation.limits import DEFAULT_LIMITS, Limits, parse_limits
from analyzer.loading.model_reference import Argument, parse_argument, parse_reference
from analyzer.loading.python.input_spec import InputSpec, parse_input
from analyzer.loading.python.source_lines import repository_root, shown_path
from analyzer.option_table import (
    DEFAULT_TIME_BUDGET_S,
    OPTIONS,
    PRICINGS,
    AnalyzeOptions,
    Command,
    Pricing,
    RecordOptions,
)
from analyzer.ort.kernels import find_release
from analyzer.precision import INTEGER_FORMS, PRECISIONS
from analyzer.record.invocation import Invocation, amended, written
from analyzer.text import duration, latency_limit, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked for, checked; ``option_table`` says what each option means to users.

    Attributes:
        batches: Batch sizes; empty for the inputs' own. The first is the report's.
        inputs: ``--input`` options.
        arguments: ``--arg`` options.
        gpus: Target GPUs; None for this machine's or the default one, empty for ``none``.
        cpu: Target CPU; None for this machine.
        precision: None for the model's own.
        state: ``--state`` options, pairs of an input and an output; None for ``--no-state``.
        opset: None for the default.
        onnxruntime: Release by whose kernels operators are placed; None for the newest that is known.
        run: Whether anything may be executed.
        runs, time_budget_s, threads: How to measure.
        objective, slo_s: What the verdict is for.
        pins: ``PATTERN=cpu|gpu``.
        prices: A file of the user's own prices.
        pricing: The way of paying for instances.
        regions: Where they are rented, or areas; empty for the catalogue's own region of each.
        utilisation: Share of rented time in which inferences run.
        cache: Whether exports may be read from and kept in the cache.
        fixed: Whether the result must be the same on every machine: no calibration, a CPU of the catalogue.
        training: Whether one training step is analysed instead of inference.
        dataset_size: Examples in an epoch, None where not told.
        limits: What reading a file may take.
    """

    batches: tuple[int, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    arguments: tuple[Argument, ...] = ()
    gpus: tuple[str, ...] | None = None
    cpu: str | None = None
    precision: str | None = None
    state: tuple[tuple[str, str], ...] | None = ()
    opset: int | None = None
    onnxruntime: str | None = None
    run: bool = True
    runs: int | None = None
    time_budget_s: float = DEFAULT_TIME_BUDGET_S
    threads: int | None = None
    objective: Objective = "latency"
    slo_s: float | None = None
    pins: tuple[str, ...] = ()
    prices: Path | None = None
    pricing: Pricing = "on-demand"
    regions: tuple[str, ...] = ()
    utilisation: float = 1.0
    cache: bool = True
    fixed: bool = False
    training: bool = False
    dataset_size: int | None = None
    limits: Limits = DEFAULT_LIMITS

    @property
    def batch(self) -> int | None:
        """The batch that the report is for."""
        return self.batches[0] if self.batches else None


def make_options(**given: Unpack[AnalyzeOptions]) -> Options:
    """Checks what a user gave; every keyword is a long option, None is one that was left out.

    Raises:
        TypeError: No such option.
        UsageError: A value that cannot be right.
    """
    require_keywords("analyze", given, AnalyzeOptions.__annotations__)
    inputs, pins = given.get("input") or (), given.get("pin") or ()
    precision, prices = given.get("precision"), given.get("prices")
    budget, slo = given.get("time_budget"), given.get("slo")
    utilisation, limits = given.get("utilisation"), given.get("limit") or ()
    release, arguments = given.get("onnxruntime"), given.get("arg") or ()
    return Options(
        training=given.get("training", False),
        dataset_size=_positive(given.get("dataset_size"), "--dataset-size", _MOST_EXAMPLES),
        batches=_batches(given.get("batch")),
        inputs=tuple(map(_input, [inputs] if isinstance(inputs, str) else inputs)),
        arguments=tuple(map(parse_argument, [arguments] if isinstance(arguments, str) else arguments)),
        gpus=_gpus(given.get("gpu")),
        cpu=given.get("cpu"),
        precision=_precision(precision, training=given.get("training", False)) if precision else None,
        state=_state(given.get("state", True), training=given.get("training", False)),
        opset=_opset(given.get("opset")),
        onnxruntime=find_release(release) if release else None,
        run=given.get("run", True),
        runs=_positive(given.get("runs"), "--runs", _MOST_RUNS),
        time_budget_s=_time_budget(budget) if budget else DEFAULT_TIME_BUDGET_S,
        threads=_positive(given.get("threads"), "--threads", _MOST_RUNS),
        objective=_objective(given.get("objective")),
        slo_s=latency_limit(slo, where="--slo") if slo is not None else None,
        pins=(pins,) if isinstance(pins, str) else tuple(pins),
        prices=Path(prices) if prices else None,
        pricing=_pricing(given.get("pricing")),
        regions=_regions(given.get("region")),
        utilisation=_utilisation(utilisation) if utilisation is not None else 1.0,
        cache=given.get("cache", True),
        limits=parse_limits([limits] if isinstance(limits, str) else limits),
        fixed=given.get("check", False),
    )


def _opset(given: int | str | None) -> int | None:
    if given is None or isinstance(given, int):
        return given
    text = given.strip()
    if text == "auto":
        raise UsageError(
            "--opset auto: an analysis is of one opset.", hint="`analyze apply MODEL --opset auto` chooses one."
        )
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"--opset {given}: an opset is a whole number.", hint="For example --opset 20.")
    return int(text)


def _precision(name: str, *, training: bool) -> str:
    precision = _one_of(name, PRECISIONS, "--precision")
    if training and precision in INTEGER_FORMS:
        raise UsageError(
            f"--precision {precision}: a training step is made of floats; weights are quantised afterwards.",
            hint="Leave out --training, or choose fp16 or bf16.",
        )
    return precision


def _state(given: bool | str | Sequence[str], *, training: bool) -> tuple[tuple[str, str], ...] | None:
    if given is False:
        return None
    texts = () if given is True or given is None else (given,) if isinstance(given, str) else tuple(given)
    if training and texts:
        raise UsageError(
            "--state: a training step has no other state than its weights and the optimizer's.",
            hint="Leave out --state or --training.",
        )
    return tuple(map(_state_pair, texts))


def _state_pair(text: str) -> tuple[str, str]:
    past, equals, present = text.partition("=")
    if not equals or not past.strip() or not present.strip():
        raise UsageError(
            f"--state {text}: expected IN=OUT.",
            hint="For example --state past_0=present_0; the names are ONNX's.",
        )
    return past.strip(), present.strip()


def require_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a keyword that a function does not take, as the command line does an option: with the nearest.

    Raises:
        TypeError: There is one.
    """
    known = tuple(known)
    unknown = next((name for name in given if name not in known), None)
    if unknown is None:
        return
    # `no_run=True`, as the command line has it, is `run=False` here.
    negated = next((option.keyword for option in OPTIONS if option.name.replace("-", "_") == unknown), None)
    if negated in known:
        hint = f"write {negated}=False"
    else:
        meant = nearest(unknown.lower(), known)
        hint = f"did you mean {meant}?" if meant else f"it takes {', '.join(sorted(known))}"
    raise TypeError(f"{function}() has no option {unknown!r}; {hint}")


def invocation_of(model: object, given: AnalyzeOptions, *, default_gpu: str | None) -> Invocation:
    """What the record keeps of what was asked.

    Args:
        model: As ``analyze()`` got it.
        given: Its keywords.
        default_gpu: The GPU that stands in for one that was not named, where it is not this machine's own.
    """
    command: Command = "check" if given.get("check") else "run"
    # An ``nn.Module`` or a graph in memory has no name that a command line could load it by.
    named = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    return Invocation(
        command=command,
        model=_model_name(named) if named else None,
        options=written(command, given, path_shower(named)),
        stand_ins={} if default_gpu is None else {"gpu": (default_gpu,)},
    )


def replayed_invocation(before: Invocation | None, given: RecordOptions) -> Invocation | None:
    """What a record decided anew answers: its own invocation with what was given now.

    A number of threads was meant for the record's own CPU and does not hold for another.
    """
    if before is None:
        return None
    dropped = ("threads",) if given.get("cpu") else ()
    return amended(before, written("render", given, path_shower()), without=dropped)


def _model_name(text: str) -> str:
    """MODEL, its file as reports show it."""
    reference = parse_reference(text)
    if reference.path is None:
        return text
    return shown_path(reference.path) + (f":{reference.called}" if reference.name else "")


def path_shower(model: str | None = None) -> Callable[[str], str]:
    """How a path is written beside MODEL: from the same folder as MODEL's own, whole where it lies elsewhere.

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


# Options may come with a stranger's model: bounds far beyond what is ever meant, so that a run comes to an end
# and no figure leaves the numbers.
_MOST_BATCHES, _MOST_RUNS, _MOST_EXAMPLES, _MOST_ELEMENTS = 100, 10**6, 10**15, 2**48
_LONGEST_BUDGET_S, _LEAST_UTILISATION = 3600.0, 1e-6


def _input(text: str) -> InputSpec:
    spec = parse_input(text)
    if math.prod(spec.sizes(1)) > _MOST_ELEMENTS:
        raise UsageError(f"--input {text}: no machine holds so many elements.", hint="Give smaller sizes.")
    return spec


def _time_budget(value: float | str) -> float:
    seconds = duration(value, where="--time-budget")
    if seconds > _LONGEST_BUDGET_S:
        raise UsageError(
            f"--time-budget {value}: must be at most {_LONGEST_BUDGET_S:g} s.",
            hint="Figures hardly change after a minute.",
        )
    return seconds


def _batches(batch: int | str | Sequence[int] | None) -> tuple[int, ...]:
    if batch is None:
        return ()
    parts = batch.split(",") if isinstance(batch, str) else [batch] if isinstance(batch, int) else batch
    batches = []
    for part in parts:
        text = str(part).strip()
        # The sign is let through, so that "-3" is told what a batch is like any other number.
        # Twenty digits are over 64 bits; Python reads no number of thousands.
        if not text.removeprefix("-").isdecimal() or len(text) > 20 or int(text) < 1:
            raise UsageError(
                f"--batch {text}: a batch is a whole number from 1.", hint="For example --batch 64."
            )
        batches.append(int(text))
    if len(batches) > _MOST_BATCHES:
        raise UsageError(f"--batch: {len(batches)} batches are too many.", hint=f"At most {_MOST_BATCHES}.")
    return tuple(dict.fromkeys(batches))  # the first is the report's: the order stays


def _gpus(gpu: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if gpu is None:
        return None
    names = [name.strip() for name in (gpu.split(",") if isinstance(gpu, str) else gpu)]
    if any(not name for name in names) or not names:
        raise UsageError(
            "--gpu needs a name.",
            hint="`analyze devices` lists them; `all` takes every one, `none` looks at the CPU alone.",
        )
    if any(name.lower() == "none" for name in names):
        if len(names) > 1:
            raise UsageError("--gpu none cannot stand beside other GPUs.")
        return ()
    return tuple(dict.fromkeys(names))


def _one_of(value: str, known: tuple[str, ...], option: str) -> str:
    if value in known:
        return value
    meant = nearest(value.lower(), known)
    raise UsageError(
        f"{option} {value}: no such value.",
        hint=f"Did you mean {meant}?" if meant else f"One of {', '.join(known)}.",
    )


def _objective(value: str | None) -> Objective:
    if value is None:
        return "latency"
    _one_of(value, OBJECTIVES, "--objective")
    return next(objective for objective in OBJECTIVES if objective == value)


def _pricing(value: str | None) -> Pricing:
    if value is None:
        return PRICINGS[0]
    _one_of(value, PRICINGS, "--pricing")
    return next(pricing for pricing in PRICINGS if pricing == value)


def _regions(region: str | Sequence[str] | None) -> tuple[str, ...]:
    if region is None:
        return ()
    names = [name.strip() for name in (region.split(",") if isinstance(region, str) else region)]
    if any(not name for name in names) or not names:
        raise UsageError("--region needs a name.", hint="For example --region europe, or eu-west-1,westeurope.")
    return tuple(dict.fromkeys(names))


def _positive(value: int | None, option: str, most: int) -> int | None:
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{option} {value}: must be a whole number from 1 to {most:,}.")
    return value


def _utilisation(value: float) -> float:
    if not _LEAST_UTILISATION <= value <= 1:
        raise UsageError(f"--utilisation {value}: must be over 0 and up to 1, from {_LEAST_UTILISATION:f}.")
    return value
