"""Analysis: the value that holds everything a report, a check or a record needs.

Its fields are the keys of the JSON record, one to one, in their order, so that a
report made from a saved record is the report made at once. Seconds, bytes, FLOPs, US dollars, joules.
None means not known, never 0.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from analyzer import __version__
from analyzer.devices.device import Device
from analyzer.figures import Timed
from analyzer.quantities import Amount, Count, Positive, Value
from analyzer.record.capacity import CapacityResult
from analyzer.record.formats import NOTEBOOK, find_charts
from analyzer.record.formats import find as find_format
from analyzer.record.formats import render as render_format
from analyzer.record.generation import GenerationResult
from analyzer.record.invocation import Invocation

# "as" is how a type checker learns that a name is meant to be imported from here (mypy's no_implicit_reexport).
from analyzer.record.operator_rows import columns
from analyzer.record.outcome import Answer, RankedWay
from analyzer.record.outcome import BatchRange as BatchRange
from analyzer.record.outcome import CostRow as CostRow
from analyzer.record.outcome import PlanResult as PlanResult
from analyzer.record.outcome import PrecisionResult as PrecisionResult
from analyzer.record.outcome import SweepPlan as SweepPlan
from analyzer.record.outcome import SweepRow as SweepRow
from analyzer.record.outcome import TransferItem as TransferItem
from analyzer.record.outcome import Transfers as Transfers
from analyzer.record.outcome import VerdictResult as VerdictResult
from analyzer.record.output_files import contents, targets, write_all
from analyzer.record.replay_data import GroupResult as GroupResult
from analyzer.record.replay_data import ReplayData
from analyzer.record.training_step import TrainingResult

# Raised where a key is renamed or removed, or means something else; adding one keeps it.
SCHEMA_VERSION: Final = 1

# No "hybrid": one operator runs on one device.
OperatorDevice = Literal["cpu", "gpu", "either"]

# Types of inputs that ONNX Runtime's Python interface binds no values of: texts, and less than 8 bits.
_UNBOUND = re.compile(r"string|u?int[24]|float4\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """The program that made the record."""

    name: str
    version: str


TOOL = Tool(name="analyze", version=__version__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """A tensor as the record shows it. ``dtype`` is ONNX's type string for sequences and optionals."""

    name: str
    shape: tuple[Count | None, ...] | None
    dtype: str
    constant: bool = False


# What a note says of inputs that nobody gave, behind their names.
LEFT_OUT = "left out (None)"
# What a note says of the layers of a training step whose recurrences its graph holds step by step.
UNROLLED = "unrolled into single operators"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInfo:
    """An input that stays on the device from run to run, the output that is its next value, and its shape.

    The two are one name where it never changes.
    """

    input: str
    output: str
    shape: tuple[Count | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The analysed model.

    ``inputs_origin`` is ``given``, ``file``, ``script`` (its first forward) or ``inferred``; ``exporter`` is
    ``torch.export``, ``torchscript``, ``onnx`` or ``pt2``; ``weights`` is ``none`` where none was allocated.
    ``guessed_inputs`` are those that were inferred, as ``--input`` takes them.
    ``assumed_sizes`` are the sizes that were taken for dimensions of the inputs which nothing binds, by name.
    ``state`` is what a model of inference hands on from run to run; none of it is copied.
    ``ir_version`` is that of the ONNX format, 0 where it is not known.
    ``problems`` are the reasons for which ONNX Runtime does not load the model, as sentences.
    ``empty_inputs`` says which inputs the file declares with a size of 0, and how to size them, as sentences.
    """

    name: str
    source: str
    digest: str
    opset: Count
    batch: Count | None
    precision: str
    parameters: Count
    parameter_bytes: Count
    inputs: tuple[TensorInfo, ...]
    training: bool
    outputs: tuple[TensorInfo, ...] = ()
    inputs_origin: str = ""
    guessed_inputs: tuple[str, ...] = ()
    exporter: str = ""
    notes: tuple[str, ...] = ()
    assumed_sizes: Mapping[str, Count] = field(default_factory=dict)
    state: tuple[StateInfo, ...] = ()
    ir_version: Count = 0
    problems: tuple[str, ...] = ()
    empty_inputs: tuple[str, ...] = ()

    @property
    def can_be_applied(self) -> bool:
        """Return whether ``analyze apply`` may take the model: with weights, and inputs that can be bound."""
        # What was built of a configuration of Hugging Face has no weights.
        configuration = PurePosixPath(self.source.replace("\\", "/")).name == "config.json"
        return not configuration and not any(_UNBOUND.fullmatch(item.dtype) for item in self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The two sides of the decision; ``gpu`` is None with ``--gpu none``."""

    cpu: Device
    gpu: Device | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Shares of operators (or of time) by the basis of their count."""

    exact: Amount
    modelled: Amount
    unknown: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Plain sums over ``operators``; "at least" where ``coverage.unknown`` is above 0 or a note says so.

    ``folded_flops`` are those of operators that a session computes once, when it is made, and in no other sum.
    """

    flops: Count
    macs: Count
    bytes_read: Count
    bytes_written: Count
    intensity: Amount | None
    fused_bytes_read: Count | None
    fused_bytes_written: Count | None
    fused_intensity: Amount | None
    peak_memory_bytes: Count | None
    operators: Count
    coverage: Coverage
    coverage_time: Coverage | None
    folded_flops: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The user's own source line, or where a module was constructed."""

    file: str
    line: Count
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opportunity:
    """A change that is predicted to make the answer faster, and how to make it.

    Attributes:
        code: A slug of what is changed.
        title: What to do.
        operators: Indices of those that it is about; empty for the whole model.
        source: The first of their lines.
        gain_s: Seconds of a run or a request that it saves; of a larger batch, of as many. None where it saves
            machines: the dollars then have an interval.
        gain_low_s, gain_high_s: Ends of the 90 % interval, which excludes 0.
        gain_usd_per_million: Dollars that it saves on the answer's instance; None on another device.
        gain_usd_low_per_million, gain_usd_high_per_million: As those of seconds.
        command: The line that does it; empty where the model's code must change.
        findings: Codes of findings that say the same.
    """

    code: str
    title: str
    operators: tuple[Count, ...] = ()
    source: Where | None = None
    gain_s: Amount | None = None
    gain_low_s: Amount | None = None
    gain_high_s: Amount | None = None
    gain_usd_per_million: Amount | None = None
    gain_usd_low_per_million: Amount | None = None
    gain_usd_high_per_million: Amount | None = None
    command: str = ""
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime(Timed):
    """One operator's time on the CPU."""

    bound: Literal["compute", "memory", "overhead"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOverhead:
    """The part of a predicted time on the GPU besides the operator's own arithmetic and traffic.

    ``floor_s`` is of kernels with nothing to do, ``gap_s`` between kernels in a CUDA graph, ``host_s`` what
    launching node by node adds: longer gaps, and the host's surplus where it is slower than the GPU.
    ``surplus_s`` is that surplus, a part of ``host_s``, ``layout_s`` of kernels that turn a convolution's
    tensors to channels last and back.
    """

    floor_s: Amount
    gap_s: Amount
    host_s: Amount
    surplus_s: Amount = 0.0
    layout_s: Amount = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTime(CpuTime):
    """One operator's time on the GPU, and where ONNX Runtime's CUDA session puts it.

    ``why`` is one of ``ort.execution.NodePlacement``'s slugs, ``detail`` its sentence. ``kernel_opset`` is
    the newest opset at which it has a CUDA kernel for its types, None where it has one here or nowhere.
    ``overhead`` is part of ``time_s``, None where that was measured or is the CPU's.
    """

    supported: bool
    placed_on: Literal["cuda", "cpu"]
    why: str
    detail: str = ""
    kernel_opset: Count | None = None
    overhead: GpuOverhead | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorVerdict:
    """CPU, GPU or either for one operator; ``reason`` is one of ``decision.verdict.REASONS``."""

    device: OperatorDevice
    speedup: Positive | None
    reason: str
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorResult:
    """One operator of the exported graph, in execution order."""

    index: Count
    name: str
    op_type: str
    domain: str
    module: str
    module_class: str
    source: Where | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    attributes: Mapping[str, Value]
    flops: Count | None
    macs: Count | None
    bytes_read: Count | None
    bytes_written: Count | None
    intensity: Amount | None
    basis: Literal["exact", "modelled", "unknown"]
    note: str
    cpu: CpuTime
    gpu: GpuTime | None
    verdict: OperatorVerdict
    placement: Literal["cpu", "gpu"]
    phase: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOperator:
    """An operator in a subgraph that ONNX Runtime's CUDA session runs on the CPU; ``why`` as in ``GpuTime``."""

    name: str
    op_type: str
    domain: str
    module: str
    source: Where | None
    why: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyCopy:
    """A copy that each pass through a subgraph makes; ``bytes`` is None where its size is not known."""

    tensor: str
    direction: Literal["to_gpu", "to_cpu"]
    bytes: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyResult:
    """A subgraph of a control-flow operator, as ONNX Runtime's CUDA session places it.

    ``operator`` is the index of the operator that holds it, ``name`` its attribute (with a path where it is
    nested), ``operators`` how many run in it. ``passes`` is how often it runs at most, None where that is not
    known. ``copies`` are those inside it; what crosses between two passes is not known and not among them.
    """

    operator: Count
    name: str
    operators: Count
    passes: Count | None
    on_cpu: tuple[BodyOperator, ...] = ()
    copies: tuple[BodyCopy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The same decision for a further ``--gpu``."""

    device: Device
    plans: tuple[PlanResult, ...]
    verdict: VerdictResult
    costs: tuple[CostRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to mend: a code of ``checks``' registry, its severity and the operator it is about.

    ``device`` is the slug of the further GPU that it is about, with commas where it is about several, empty
    where it is about the record's own GPU or about all.

    ``seconds`` and ``bytes`` are what it costs per inference, None where not known. ``certain`` is False
    where the threshold lies inside the figure's interval; such a finding is never an error. ``reason`` is why
    the settings or a comment set it aside, which may be empty; of ``Analysis.ignored`` alone. ``source`` is its
    line, where that is not the operator's.
    """

    code: str
    severity: Literal["error", "warning", "note"]
    operator: Count | None
    message: str
    fix: str
    seconds: Amount | None = None
    bytes: Count | None = None
    certain: bool = True
    device: str = ""
    reason: str = ""
    source: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Versions, threads, load, run counts and the date.

    The only part that may differ between two ``--no-run`` records of the same input.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    platform: str = ""
    cpu: str = ""
    threads: Count | None = None
    load_before: Amount | None = None
    load_after: Amount | None = None
    warmup_runs: Count | None = None
    runs: Count | None = None
    date: str = ""
    export_cached: bool = False
    timings_s: Mapping[str, Amount] = field(default_factory=dict)
    # Facts of a run, shown as they are: which there are depends on the provider and on what could be had.
    measurement: Mapping[str, Value] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """One phase of generation, as the record has a model: operators, sums, plans, verdict."""

    totals: Totals
    operators: tuple[OperatorResult, ...]
    plans: tuple[PlanResult, ...]
    verdict: VerdictResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Phases of generation besides the decode step, which the record itself is about."""

    prefill: PhaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The whole record.

    ``onnxruntime`` is the release of ONNX Runtime by whose kernels operators are placed.
    ``session_fails`` says why ONNX Runtime cannot make the CUDA session at all, empty where it can.
    ``run_fails`` says why the run that was requested failed, empty where it did not or none was.
    ``generation`` is what a model that generates takes, ``phases`` its prefill: all else is a decode step's.
    ``instances`` are those with a CPU and those with a GPU by dollars, those that keep the limit first.
    ``answer`` is the first of ``ranking``: all devices, batches and instances that were asked about, each other
    one with why it is not the answer. ``answer`` is None where nothing runs the model, or the run failed.
    ``opportunities`` are what would make the answer faster, by what it gains.
    ``capacity`` says which instances serve it, and how many. ``invocation`` is what was asked.
    ``kept`` is what ``render --gpu`` predicts from; None in the record of a training step, and of generation.
    """

    # First: a reader looks at the version before it believes any other key.
    schema_version: Literal[1] = SCHEMA_VERSION
    tool: Tool
    model: ModelInfo
    devices: Devices
    totals: Totals
    operators: tuple[OperatorResult, ...]
    groups: tuple[GroupResult, ...]
    plans: tuple[PlanResult, ...]
    verdict: VerdictResult
    conventions: Mapping[str, Value]  # for readers of the JSON, which has no other place to say them
    alternatives: tuple[Alternative, ...] = ()
    costs: tuple[CostRow, ...] = ()
    sweep: tuple[SweepRow, ...] = ()
    precisions: tuple[PrecisionResult, ...] = ()
    instances: tuple[CostRow, ...] = ()
    answer: Answer | None = None
    ranking: tuple[RankedWay, ...] = ()
    opportunities: tuple[Opportunity, ...] = ()
    findings: tuple[Finding, ...] = ()
    ignored: tuple[Finding, ...] = ()
    onnxruntime: str = ""
    session_fails: str = ""
    run_fails: str = ""
    bodies: tuple[BodyResult, ...] = ()
    training: TrainingResult | None = None
    generation: GenerationResult | None = None
    phases: Phases | None = None
    capacity: CapacityResult | None = None
    invocation: Invocation | None = None
    environment: Environment = field(default_factory=Environment)
    kept: ReplayData | None = None

    def plan(self, name: str) -> PlanResult | None:
        """Return the plan of this name, None where there is none."""
        return next((plan for plan in self.plans if plan.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON record as plain values."""
        values: dict[str, Any] = json.loads(self.render("json"))
        return values

    def metrics(self) -> dict[str, float]:
        """Return the figures of the whole model by name, for ``mlflow.log_metrics`` or ``wandb.log``.

        Names are the record's keys with slashes (``plans/gpu/latency_s``, ``totals/flops``); units are SI.
        What is not known is left out. ``findings/error`` and the like are numbers of findings.
        """
        import msgspec

        names = ("model", "totals", "verdict", "answer", "training", "generation", "capacity")
        parts = {name: getattr(self, name) for name in names} | {
            "plans": {plan.name: plan for plan in self.plans},
            "findings": dict.fromkeys(("error", "warning", "note"), 0)
            | Counter(finding.severity for finding in self.findings),
        }
        return dict(_numbers(msgspec.to_builtins(parts, str_keys=True)))

    def operators_frame(self) -> Any:
        """Return a row per operator: a ``pandas.DataFrame`` where pandas is installed, else a dict of columns.

        Columns are the record's keys, nested ones joined by an underscore (``cpu_time_s``, ``verdict_device``);
        times in seconds, sizes in bytes, None (in a frame NaN) for what is not known.
        """
        result = columns(self.operators)
        try:
            import pandas
        except ImportError:
            return result
        return pandas.DataFrame(result)

    def _repr_html_(self) -> str:
        """Return a notebook's view: the answer, the plans, the operators that matter."""
        return NOTEBOOK.write(self)

    def render(self, format: str = "html") -> str:  # noqa: A002 - the option's own name
        """Return a report in one of ``record.formats``.

        Raises:
            UsageError: There is no such format, or it is that of pictures.
        """
        return render_format(self, format)

    def pictures(self, format: str = "svg", charts: Sequence[str] = ()) -> dict[str, bytes]:  # noqa: A002
        """Return charts of the page as pictures, the content of a file for each by the chart's name.

        Args:
            format: ``svg`` or ``png``.
            charts: Names of charts (``roofline``); all that the record has where none is named.

        Raises:
            UsageError: There is no such format or chart.
            LibraryError: What draws them is not installed.
        """
        return find_format(format).draw(self, find_charts(charts))

    def save(
        self,
        folder: str | PathLike[str] = "reports",
        formats: Sequence[str] = ("html", "json"),
        *,
        charts: Sequence[str] = (),
        force: bool = False,
    ) -> list[Path]:
        """Write reports as ``<model>.<extension>``; all or none. Returns their paths.

        A picture of each chart is ``<model>-<chart>.<extension>``.

        Args:
            folder: Where to.
            formats: Names of formats.
            charts: Whose pictures are drawn, where ``svg`` or ``png`` is among them; all where none is named.
            force: Whether files that are no reports of this program are replaced.

        Raises:
            OutputError: The folder cannot be written, or a file there is not ours.
        """
        # A name may hold slashes, colons and what a file system forbids.
        stem = re.sub(r"[^\w.-]+", "_", self.model.name) or "model"
        # All are rendered before any is written: a page that fails leaves no half of a set behind.
        places = targets(
            [find_format(name) for name in formats],
            f"{folder}{os.sep}",
            stem,
            Path(folder),
            find_charts(charts),
        )
        rendered = contents(self, places)
        write_all(rendered, force=force)
        return [target.path for target in rendered if target.path is not None]


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested values, which are no truth values, by the keys that lead to them."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}/")
        elif type(value) in (int, float):
            yield f"{prefix}{name}", float(value)
