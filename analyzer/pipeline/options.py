"""What an analysis is asked for, checked once: the options of the command line and of the Python interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.decision.decision_input import OBJECTIVES, Objective
from analyzer.errors import UsageError
from analyzer.loading.python.example_inputs import InputSpec, parse_input
from analyzer.parsing import duration, nearest

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")
DEFAULT_GPU = "l4"
DEFAULT_TIME_BUDGET_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """See the option table of the documentation.

    Attributes:
        batches: Batch sizes; empty for the inputs' own. The first is the report's.
        inputs: ``--input`` options.
        gpus: Target GPUs; None for this machine's or the default one, empty for ``none``.
        cpu: Target CPU; None for this machine.
        precision: None for the model's own.
        opset: None for the default.
        run: Whether anything may be executed.
        runs, time_budget_s, threads: How to measure.
        objective, slo_s: What the verdict is for.
        pins: ``PATTERN=cpu|gpu``.
        prices: A file of the user's own prices.
        utilisation: Share of rented time in which inferences run.
        cache: Whether exports may be read from and kept in the cache.
        fixed: Whether the result must be the same on every machine: no calibration, a CPU of the catalogue.
        training: Whether one training step is analysed instead of inference.
        dataset_size: Examples in an epoch, None where not told.
    """

    batches: tuple[int, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    gpus: tuple[str, ...] | None = None
    cpu: str | None = None
    precision: str | None = None
    opset: int | None = None
    run: bool = True
    runs: int | None = None
    time_budget_s: float = DEFAULT_TIME_BUDGET_S
    threads: int | None = None
    objective: Objective = "latency"
    slo_s: float | None = None
    pins: tuple[str, ...] = ()
    prices: Path | None = None
    utilisation: float = 1.0
    cache: bool = True
    fixed: bool = False
    training: bool = False
    dataset_size: int | None = None

    @property
    def batch(self) -> int | None:
        """The batch that the report is for."""
        return self.batches[0] if self.batches else None


def make_options(
    *,
    batch: int | str | Sequence[int] | None = None,
    input: str | Sequence[str] = (),  # noqa: A002 - the option's own name
    gpu: str | Sequence[str] | None = None,
    cpu: str | None = None,
    precision: str | None = None,
    opset: int | None = None,
    run: bool = True,
    runs: int | None = None,
    time_budget: float | str | None = None,
    threads: int | None = None,
    training: bool = False,
    objective: str = "latency",
    slo: float | str | None = None,
    pin: str | Sequence[str] = (),
    prices: str | Path | None = None,
    utilisation: float = 1.0,
    cache: bool = True,
    check: bool = False,
    dataset_size: int | None = None,
) -> Options:
    """Checks what a user gave; every keyword is a long option.

    Raises:
        UsageError: A value that cannot be right.
    """
    return Options(
        training=training,
        dataset_size=_positive(dataset_size, "--dataset-size"),
        batches=_batches(batch),
        inputs=tuple(parse_input(text) for text in ([input] if isinstance(input, str) else input)),
        gpus=_gpus(gpu),
        cpu=cpu,
        precision=_one_of(precision, PRECISIONS, "--precision") if precision else None,
        opset=opset,
        run=run,
        runs=_positive(runs, "--runs"),
        time_budget_s=duration(time_budget, where="--time-budget") if time_budget else DEFAULT_TIME_BUDGET_S,
        threads=_positive(threads, "--threads"),
        objective=_objective(objective),
        slo_s=duration(slo, where="--slo") if slo is not None else None,
        pins=(pin,) if isinstance(pin, str) else tuple(pin),
        prices=Path(prices) if prices else None,
        utilisation=_utilisation(utilisation),
        cache=cache,
        fixed=check,
    )


def _batches(batch: int | str | Sequence[int] | None) -> tuple[int, ...]:
    if batch is None:
        return ()
    parts = batch.split(",") if isinstance(batch, str) else [batch] if isinstance(batch, int) else batch
    found = []
    for part in parts:
        text = str(part).strip()
        if not text.lstrip("-").isdigit() or int(text) < 1:
            raise UsageError(
                f"--batch {text}: a batch is a whole number from 1.", hint="For example --batch 64."
            )
        found.append(int(text))
    return tuple(dict.fromkeys(found))


def _gpus(gpu: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if gpu is None:
        return None
    names = [name.strip() for name in (gpu.split(",") if isinstance(gpu, str) else gpu)]
    if any(not name for name in names) or not names:
        raise UsageError(
            "--gpu needs a name.", hint="`analyze devices` lists them; `none` looks at the CPU alone."
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


def _objective(value: str) -> Objective:
    _one_of(value, OBJECTIVES, "--objective")
    return next(item for item in OBJECTIVES if item == value)


def _positive(value: int | None, option: str) -> int | None:
    if value is not None and value < 1:
        raise UsageError(f"{option} {value}: must be a whole number from 1.")
    return value


def _utilisation(value: float) -> float:
    if not 0 < value <= 1:
        raise UsageError(f"--utilisation {value}: must be over 0 and up to 1.")
    return value
