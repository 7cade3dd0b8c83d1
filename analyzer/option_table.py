"""Every option, once (leaf: data alone).

``run``, ``check``, ``render``, the settings file, the keywords of ``analyze()`` and the command that asks the
same again derive from this table. It lies below the command line, which makes Click's options of it, because
the settings, the Python interface and the record read it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict

Command = Literal["run", "check", "render", "generate", "capacity", "apply", "fleet"]
ValueKind = Literal[
    "flag",
    "negation",
    "whole",
    "whole_or_auto",
    "whole_list",
    "number",
    "duration",
    "latency",
    "share",
    "text",
    "names",
    "repeated",
    "path",
]
SettingsTable = Literal["", "tool.analyzer", "tool.analyzer.check"]
Pricing = Literal["on-demand", "reserved-1y", "reserved-3y", "spot"]

# The ways of paying for a rented machine; the first is the usual one.
PRICINGS: tuple[Pricing, ...] = ("on-demand", "reserved-1y", "reserved-3y", "spot")

# What a machine without a GPU decides for.
DEFAULT_GPU = "l4"
# What `--gpu` says for the whole catalogue.
ALL_GPUS = "all"
# For each batch and device; the printed command and the help say the same number.
DEFAULT_TIME_BUDGET_S = 10.0

_EVERYWHERE: tuple[Command, ...] = ("run", "check", "render", "generate", "capacity", "fleet")
_GENERATING: tuple[Command, ...] = ("generate", "capacity", "fleet")
_MODEL_READING: tuple[Command, ...] = ("run", "check", "capacity", "apply")
_MEASURING: tuple[Command, ...] = ("run", "check", "generate", "capacity", "apply", "fleet")
_DECIDING: tuple[Command, ...] = ("run", "check", "render", "fleet")
# Those whose answer has dollars.
_PRICING: tuple[Command, ...] = _EVERYWHERE
# Read-only, as a default of a NamedTuple is one object for all options.
_NOWHERE: Mapping[Command, str] = MappingProxyType({})


# No dataclass: `analyze --help` reads the table, and would wait for the module dataclasses alone.
class Option(NamedTuple):
    """One option of the command line.

    Attributes:
        name: As users write it, without its dashes; the key in the settings file too.
        kind: What its value is. A ``negation`` turns a keyword off: ``--no-run`` is ``run=False``. A
            ``latency`` is written with its unit, a ``duration`` may be a number of seconds.
        help: What ``--help`` says.
        commands: Which commands take it.
        metavar: What stands for its value in the help.
        question: Whether it is part of what is asked: with another value the answer may be another.
        settings: In which table of pyproject.toml it stands, empty where in none.
        switch: Whether it is written ``--name/--no-name``.
        helps: The help of single commands, where it is another.
        defaults: What a command takes where nothing is given.
        spellings: Other names that people type on the command line.
    """

    name: str
    kind: ValueKind
    help: str
    commands: tuple[Command, ...] = ("run", "check")
    metavar: str | None = None
    question: bool = True
    settings: SettingsTable = "tool.analyzer"
    switch: bool = False
    helps: Mapping[Command, str] = _NOWHERE
    defaults: Mapping[Command, str] = _NOWHERE
    spellings: tuple[str, ...] = ()

    @property
    def keyword(self) -> str:
        """The keyword of ``analyze()``."""
        name = self.name.removeprefix("no-") if self.kind == "negation" else self.name
        return name.replace("-", "_")

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.kind in ("flag", "negation")

    def help_for(self, command: Command) -> str:
        """What a command's ``--help`` says."""
        return self.helps.get(command, self.help)


# In the order of the help.
OPTIONS: tuple[Option, ...] = (
    Option(
        name="batch",
        kind="whole_list",
        spellings=("batch-size",),
        metavar="N[,N...]",
        help="Batch size(s); the report is about the first, all are measured.",
        commands=_MEASURING,
        helps={
            "check": "Batch size; with several, the first is checked.",
            "apply": "Batch size that the session is for.",
            "capacity": "Batch size(s) of the model's own report; traffic is batched as suits it.",
            "fleet": "Batch size(s) of all models. [each model's own]",
            "generate": "Sequences at once; the report is about the first. [1]",
        },
    ),
    Option(
        name="input",
        kind="repeated",  # a shape holds commas
        metavar="NAME=SHAPE[:DTYPE][=VALUES]",
        help="One input, B for the batch; values as =64 or =0..29999; repeatable.",
        commands=_MODEL_READING,
    ),
    Option(
        name="arg",
        kind="repeated",  # a list holds commas
        metavar="NAME=VALUE",
        help="Argument of the class or function that builds the model: a literal, else text; repeatable.",
        commands=(*_MODEL_READING, "generate", "fleet"),
    ),
    Option(
        name="gpu",
        kind="names",
        metavar="NAME[,NAME...]",
        help=f"Target GPU(s); `all` of the catalogue; `none`: CPU only. [this machine's, else {DEFAULT_GPU}]",
        commands=(*_EVERYWHERE, "apply"),
        helps={
            "apply": f"GPU that the session is for. [this machine's, else {DEFAULT_GPU}]",
            "capacity": "GPU(s) whose instances are looked at; none for CPUs alone. [all that are rented]",
            "check": "Target GPU(s), each held against the budgets; `all` of the catalogue; `none`: CPU only.",
            "fleet": f"Target GPU(s), a column each; or `all`. [this machine's, else {DEFAULT_GPU}]",
            "generate": f"Target GPU(s) of the catalogue; with several those are compared. [{DEFAULT_GPU}]",
            "render": "Decide for these GPUs of the catalogue, or `all`, instead of the record's.",
        },
    ),
    Option(
        name="cpu",
        kind="text",
        metavar="NAME",
        help="Target CPU of the catalogue. [this machine]",
        commands=(*_EVERYWHERE, "apply"),
        helps={
            "capacity": "CPU whose instances are looked at. [all that are rented]",
            "check": "Target CPU of the catalogue; default: a fixed one, the same on every runner.",
            "render": "Decide for this CPU of the catalogue.",
        },
    ),
    Option(
        name="precision",
        kind="text",
        metavar="P",
        help="fp32, tf32, fp16, bf16, int8 or int4 (weights). [the model's own]",
        commands=(*_DECIDING, "capacity", "apply"),
        helps={
            "apply": "fp16 or int8 convert the model; fp32 turns TF32 off. [the model's own]",
            "render": "Decide for fp32, tf32, fp16, bf16, int8 or int4.",
        },
    ),
    Option(
        name="state",
        kind="repeated",
        metavar="IN=OUT",
        help="Output that is an input's next value and stays on the device (a cache); repeatable. [found]",
        commands=_MODEL_READING,
    ),
    Option(
        name="no-state",
        kind="negation",
        help="Nothing stays on the device from run to run: caches are copied like any input.",
        commands=_MODEL_READING,
    ),
    Option(
        name="opset",
        kind="whole_or_auto",
        metavar="N",
        # 20 is `DEFAULT_OPSET` of loading/loaded.py; this table imports nothing.
        help="Opset of the export; for an .onnx file the one to convert to. [20]",
        commands=(*_MODEL_READING, "fleet"),
        helps={"apply": "Opset of the model that is written; `auto` takes the fastest. [20]"},
    ),
    Option(
        name="onnxruntime",
        kind="text",
        metavar="VERSION",
        help="Release of ONNX Runtime whose kernels place operators, like 1.29. [the newest known]",
        commands=("run", "check", "apply", "fleet"),
        helps={"apply": "Release of ONNX Runtime that the session is for, like 1.29. [the newest known]"},
    ),
    Option(
        name="no-run",
        kind="negation",
        help="Execute nothing: counts and predictions only.",
        commands=("run", "generate", "capacity", "apply"),
        helps={"apply": "Time nothing; numbers are compared all the same."},
    ),
    Option(
        name="run",
        kind="flag",
        help="Execute and measure here. By default nothing is executed.",
        commands=("check", "fleet"),
        settings="",
        switch=True,
        helps={"fleet": "Measure each model on the devices that are there. By default nothing is executed."},
    ),
    Option(
        name="runs",
        kind="whole",
        metavar="N",
        help="Exact number of timed runs.",
        commands=_MEASURING,
        helps={"check": "How many runs to measure, with --run."},
    ),
    Option(
        name="time-budget",
        kind="duration",
        metavar="S",
        help=f"Seconds to measure for, each batch. [{DEFAULT_TIME_BUDGET_S:g}]",
        commands=_MEASURING,
        helps={"check": "Seconds to measure for, with --run."},
    ),
    Option(
        name="threads",
        kind="whole",
        metavar="N",
        help="Intra-op threads of the CPU.",
        commands=_MEASURING,
        helps={"check": "Intra-op threads, with --run."},
    ),
    Option(
        name="training",
        kind="flag",
        help="One training step instead of inference.",
        commands=("run", "check", "fleet"),
    ),
    # On the command line alone: what limits a file may not come with the file.
    Option(
        name="limit",
        kind="repeated",
        metavar="NAME=VALUE",
        help="Raises what reading a file may take, like memory=8GB, time=5min, nodes=2000000; repeatable.",
        commands=_MEASURING,
        question=False,
        settings="",
    ),
    Option(
        name="dataset-size",
        kind="whole",
        metavar="N",
        help="Examples in an epoch, for time and cost per epoch.",
        commands=("run",),
    ),
    Option(
        name="objective",
        kind="text",
        metavar="O",
        help="latency, throughput, cost or energy. [latency]",
        commands=(*_DECIDING, "apply"),
        helps={"render": "Decide by latency, throughput, cost or energy."},
    ),
    Option(
        name="slo",
        kind="latency",
        metavar="TIME",
        help="Latency that must be met, with its unit: 20ms, 1.5s.",
        commands=(*_DECIDING, "apply"),
    ),
    Option(
        name="pin",
        kind="repeated",  # a pattern may hold commas
        metavar="PATTERN=cpu|gpu",
        help="Binds operators in the best plan; repeatable.",
        commands=("run", "check", "render", "apply"),
    ),
    Option(
        name="plan",
        kind="text",
        metavar="P",
        help="cpu, gpu or hybrid (the best split). [the verdict's; with --pin hybrid]",
        commands=("apply",),
    ),
    Option(
        name="fix",
        kind="names",
        metavar="NAME[,NAME...]",
        help="Rewrites the model first: fusions, last-logits, or all that apply. [none]",
        commands=("apply",),
    ),
    Option(
        name="prices",
        kind="path",
        metavar="FILE",
        help="Your own instance prices (TOML).",
        commands=_EVERYWHERE,
    ),
    Option(
        name="pricing",
        kind="text",
        metavar="WAY",
        help=f"How instances are paid: {', '.join(PRICINGS)}. [{PRICINGS[0]}]",
        commands=_PRICING,
        helps={"render": f"How instances are paid: {', '.join(PRICINGS)}."},
    ),
    Option(
        name="region",
        kind="names",
        metavar="NAME[,NAME...]",
        help="Where instances are rented: regions of the providers, or us, europe, asia. [one of each]",
        commands=_PRICING,
        helps={"render": "Where instances are rented: regions of the providers, or us, europe, asia."},
    ),
    Option(
        name="utilisation",
        kind="number",
        spellings=("utilization",),
        metavar="U",
        help="Share of rented time in use, for prices. [1]",
        commands=_DECIDING,
        helps={"render": "Share of rented time in use, for prices."},
    ),
    Option(
        name="prompt",
        kind="whole",
        metavar="N",
        help="Tokens of each sequence that are given. [1024, or as many as the model takes]",
        commands=_GENERATING,
    ),
    Option(
        name="output-tokens",
        kind="whole",
        metavar="N",
        help="Tokens of each sequence that are made. [256]",
        commands=_GENERATING,
    ),
    Option(
        name="gpus",
        kind="whole",
        metavar="N",
        help="GPUs that share the model (tensor parallel). [the fewest that hold it]",
        commands=_GENERATING,
    ),
    Option(
        name="weights",
        kind="text",
        metavar="T",
        help="Type of the layers' weights: fp16, bf16, fp8, int8 or int4. [the model's own]",
        commands=_GENERATING,
    ),
    Option(
        name="kv",
        kind="text",
        metavar="T",
        help="Type of the cache: fp16, bf16, fp8 or int8. [16 bits]",
        commands=_GENERATING,
    ),
    Option(
        name="launch",
        kind="text",
        metavar="L",
        help="session (node by node) or graph (one replay of a CUDA graph). [session]",
        commands=_GENERATING,
    ),
    Option(
        name="ttft",
        kind="latency",
        metavar="TIME",
        help="Longest time to the first token, like 500ms.",
        commands=_GENERATING,
    ),
    Option(
        name="tpot",
        kind="latency",
        metavar="TIME",
        help="Longest time of each further token, like 30ms.",
        commands=_GENERATING,
    ),
    Option(
        name="rate",
        kind="number",
        metavar="N",
        help="Requests a second, each of them one inference. [a trace's own]",
        commands=("capacity",),
    ),
    Option(
        name="p50",
        kind="latency",
        metavar="TIME",
        help="Half of the requests are answered within this, waiting included, like 50ms.",
        commands=("capacity",),
    ),
    Option(
        name="p90",
        kind="latency",
        metavar="TIME",
        help="90 of 100 requests are answered within this, waiting included, like 50ms.",
        commands=("capacity",),
    ),
    Option(
        name="p95",
        kind="latency",
        metavar="TIME",
        help="95 of 100 requests are answered within this, waiting included, like 50ms.",
        commands=("capacity",),
    ),
    Option(
        name="p99",
        kind="latency",
        metavar="TIME",
        help="99 of 100 requests are answered within this, waiting included, like 50ms.",
        commands=("capacity",),
    ),
    Option(
        name="mean",
        kind="latency",
        metavar="TIME",
        help="Requests are answered within this on average, waiting included.",
        commands=("capacity",),
    ),
    Option(
        name="arrivals",
        kind="path",
        metavar="poisson|FILE",
        help="Poisson, or a CSV file with seconds since the start in its first column. [poisson]",
        commands=("capacity",),
    ),
    Option(
        name="max-batch",
        kind="whole",
        metavar="N",
        help="Most requests in a batch. [chosen]",
        commands=("capacity",),
    ),
    Option(
        name="max-delay",
        kind="latency",
        metavar="TIME",
        help="How long the oldest request may wait for its batch to fill, like 2ms. [chosen]",
        commands=("capacity",),
    ),
    Option(
        name="headroom",
        kind="share",
        metavar="SHARE",
        help="Share of the rate that must be free beside it, like 20%. [0]",
        commands=("capacity",),
    ),
    Option(
        name="growth",
        kind="number",
        metavar="X",
        help="Times the rate that is planned for. [1]",
        commands=("capacity",),
    ),
    Option(
        name="spare",
        kind="whole",
        metavar="N",
        help="Instances that may fail. [0]",
        commands=("capacity",),
    ),
    Option(
        name="fail-on",
        kind="repeated",
        help="error (default), warning, note or never; or codes that become errors.",
        commands=("check", "fleet"),
        settings="tool.analyzer.check",
        helps={"fleet": "error: exit status 1 where a model failed. [never]"},
    ),
    Option(
        name="warn-on",
        kind="repeated",
        help="Codes that become warnings.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="fail-on-uncertain",
        kind="flag",
        help="Findings whose interval crosses their threshold may be errors; in the settings file alone.",
        commands=(),
        settings="tool.analyzer.check",
    ),
    Option(
        name="ignore",
        kind="repeated",
        help="Codes to set aside; [tool.analyzer.check] takes patterns and reasons.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="max-cpu-operators",
        kind="whole",
        help="Most operators forced to the CPU.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="max-copies",
        kind="whole",
        help="Most copies inside the graph.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="max-latency",
        kind="latency",
        metavar="TIME",
        help="Longest latency, with its unit: 20ms, 1.5s.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="max-ttft",
        kind="latency",
        metavar="TIME",
        help="Longest time to the first token of a record of `generate`, like 500ms.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="max-tpot",
        kind="latency",
        metavar="TIME",
        help="Longest time of each further token of a record of `generate`, like 30ms.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="min-tokens-per-s",
        kind="number",
        metavar="N",
        help="Fewest tokens a second of a record of `generate`, over the whole batch.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="max-usd-per-month",
        kind="number",
        metavar="N",
        help="Most dollars a month of a record of `capacity`.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="min-rate",
        kind="number",
        metavar="N",
        help="Requests a second that a record of `capacity` must take within its limit.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="baseline",
        kind="path",
        help="Record that figures may not rise above.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    # An act, not a question: in a settings file every check would write its own baseline and pass.
    Option(
        name="update-baseline",
        kind="flag",
        help="Write the baseline (default analyzer-baseline.json).",
        commands=("check",),
        question=False,
        settings="",
    ),
    Option(
        name="tolerance",
        kind="share",
        help="Share by which a figure may rise above the baseline, like 2%.",
        commands=("check",),
        settings="tool.analyzer.check",
    ),
    Option(
        name="format",
        kind="names",
        metavar="F[,F...]",
        help="html, json, markdown, csv, junit, sarif, github, text; svg, png: a picture of each chart. "
        "[html,json]",
        commands=("run", "check", "render", "generate", "capacity"),
        question=False,
        helps={
            "check": "text, json, sarif, junit, github, markdown, ... [text]",
            "render": "html, json, markdown, csv, text, junit, sarif, github; svg, png: a picture of each "
            "chart. [html]",
        },
        defaults={
            "run": "html,json",
            "check": "text",
            "render": "html",
            "generate": "html,json",
            "capacity": "html,json",
        },
    ),
    Option(
        name="chart",
        kind="names",
        metavar="NAME[,NAME...]",
        help="Charts that svg and png draw: roofline, timeline, ... [all]",
        commands=("run", "render", "generate", "capacity"),
        question=False,
    ),
    # No path to Click: a slash at its end, which says that it is a folder, would be lost, and "-" is no file.
    Option(
        name="output",
        kind="text",
        metavar="PATH",
        help="File (x.html is that format), or folder for several; - is standard output. [reports/]",
        commands=(*_EVERYWHERE, "apply"),
        question=False,
        helps={
            "apply": "Folder to write: the model, its weights, session.json, run.py, apply.json.",
            "check": "File (x.json is that format), folder for several; `-` is standard output (the default).",
            "fleet": "Folder to write: index.html, fleet.json, fleet.csv, a record and a page of each model.",
            "render": "File (x.md is Markdown), folder for several; - is standard output. [beside the record]",
        },
    ),
    # On the command line alone, as what comes with a model may neither lose files nor start programs.
    Option(
        name="force",
        kind="flag",
        help="Replace files that are no reports of this program.",
        helps={"apply": "Write into a folder that is not empty."},
        commands=(*_EVERYWHERE, "apply"),
        question=False,
        settings="",
    ),
    # Not part of the question: a cached export is the same graph.
    Option(
        name="no-cache",
        kind="negation",
        help="Export afresh.",
        commands=(*_MODEL_READING, "generate", "fleet"),
        question=False,
    ),
    Option(
        name="on",
        kind="text",
        metavar="WHERE",
        help="local, ray (a cluster that is there, else one started here) or ray://HOST:PORT. [local]",
        commands=("fleet",),
        question=False,
        settings="",
    ),
    Option(
        name="jobs",
        kind="whole",
        metavar="N",
        help="Models at once. [as many as cores and memory allow]",
        commands=("fleet",),
        question=False,
        settings="",
    ),
    Option(
        name="timeout",
        kind="number",
        metavar="SECONDS",
        help="Longest time of one model. [900]",
        commands=("fleet",),
        question=False,
        settings="",
    ),
    Option(
        name="retry-failed",
        kind="flag",
        help="Try models again that failed before.",
        commands=("fleet",),
        question=False,
        settings="",
    ),
    Option(
        name="compare",
        kind="text",
        metavar="OLD",
        help="Say what changed since OLD, an earlier fleet's folder or fleet.json.",
        commands=("fleet",),
        question=False,
        settings="",
    ),
    Option(
        name="open",
        kind="flag",
        help="Open the page in a browser.",
        commands=("run", "render", "generate", "capacity", "fleet"),
        question=False,
        settings="",
    ),
    Option(
        name="quiet",
        kind="flag",
        help="Nothing but errors on standard error.",
        commands=(*_EVERYWHERE, "apply"),
        question=False,
        helps={"check": "No progress on standard error.", "render": "Do not print where reports went."},
    ),
    Option(
        name="verbose",
        kind="flag",
        help="Findings and times of all stages as well.",
        commands=("run", "check", "generate", "capacity", "fleet"),
        question=False,
        helps={"fleet": "What each model took, and why one failed.", "check": "More about what is happening."},
    ),
)


# Written out, not made from the table: a type checker and an editor read no values. A test compares the two.
class RecordOptions(TypedDict, total=False):
    """Keywords of ``analyze_record()``: what a saved record can be decided anew by."""

    gpu: str | Sequence[str] | None
    cpu: str | None
    precision: str | None
    objective: str | None
    slo: float | str | None
    pin: str | Sequence[str]
    prices: str | PathLike[str] | None
    pricing: str | None
    region: str | Sequence[str] | None
    utilisation: float | None


class AnalyzeOptions(RecordOptions, total=False):
    """Keywords of ``analyze()``: the long options with underscores, ``run=False`` and ``cache=False``.

    ``check=True`` decides as ``analyze check`` does: no figure of this machine, a fixed CPU.
    """

    batch: int | str | Sequence[int] | None
    input: str | Sequence[str]
    arg: str | Sequence[str]
    state: bool | str | Sequence[str]
    opset: int | str | None
    onnxruntime: str | None
    run: bool
    runs: int | None
    time_budget: float | str | None
    threads: int | None
    training: bool
    limit: str | Sequence[str]
    dataset_size: int | None
    cache: bool
    check: bool


class GenerateOptions(TypedDict, total=False):
    """Keywords of ``analyze_generation()``: the long options of ``analyze generate`` with underscores."""

    batch: int | str | Sequence[int] | None
    arg: str | Sequence[str]
    gpu: str | Sequence[str] | None
    cpu: str | None
    run: bool
    runs: int | None
    time_budget: float | str | None
    threads: int | None
    limit: str | Sequence[str]
    prices: str | PathLike[str] | None
    pricing: str | None
    region: str | Sequence[str] | None
    prompt: int | None
    output_tokens: int | None
    gpus: int | None
    weights: str | None
    kv: str | None
    launch: str | None
    ttft: float | str | None
    tpot: float | str | None
    cache: bool


class CapacityOptions(TypedDict, total=False):
    """Keywords of ``plan_capacity()``: the long options of ``analyze capacity`` with underscores."""

    batch: int | str | Sequence[int] | None
    input: str | Sequence[str]
    arg: str | Sequence[str]
    gpu: str | Sequence[str] | None
    cpu: str | None
    precision: str | None
    state: bool | str | Sequence[str]
    opset: int | str | None
    run: bool
    runs: int | None
    time_budget: float | str | None
    threads: int | None
    limit: str | Sequence[str]
    prices: str | PathLike[str] | None
    pricing: str | None
    region: str | Sequence[str] | None
    cache: bool
    rate: float | None
    p50: float | str | None
    p90: float | str | None
    p95: float | str | None
    p99: float | str | None
    mean: float | str | None
    arrivals: str | PathLike[str] | None
    max_batch: int | None
    max_delay: float | str | None
    headroom: float | str | None
    growth: float | None
    spare: int | None
    prompt: int | None
    output_tokens: int | None
    gpus: int | None
    weights: str | None
    kv: str | None
    launch: str | None
    ttft: float | str | None
    tpot: float | str | None


class FleetOptions(GenerateOptions, total=False):
    """Keywords of ``analyze_fleet()``: options for all models, of those commands that take them."""

    precision: str | None
    opset: int | str | None
    onnxruntime: str | None
    training: bool
    objective: str | None
    slo: float | str | None
    utilisation: float | None


class ApplyOptions(TypedDict, total=False):
    """Keywords of ``apply_plan()``: the long options of ``analyze apply`` with underscores."""

    batch: int | str | Sequence[int] | None
    input: str | Sequence[str]
    arg: str | Sequence[str]
    gpu: str | Sequence[str] | None
    cpu: str | None
    precision: str | None
    state: bool | str | Sequence[str]
    opset: int | str | None
    onnxruntime: str | None
    run: bool
    runs: int | None
    time_budget: float | str | None
    threads: int | None
    limit: str | Sequence[str]
    objective: str | None
    slo: float | str | None
    pin: str | Sequence[str]
    plan: str | None
    fix: str | Sequence[str] | None
    cache: bool


def taken_by(command: Command) -> tuple[Option, ...]:
    """The options of a command, in the order of its help."""
    return tuple(option for option in OPTIONS if command in option.commands)


def in_settings(table: SettingsTable) -> tuple[Option, ...]:
    """What may stand in a table of pyproject.toml."""
    return tuple(option for option in OPTIONS if option.settings == table)


def given_keywords(values: Mapping[str, Any], command: Command) -> dict[str, Any]:
    """Keywords of a command's function from values by long option; what was left out is not there."""
    given = {}
    for option in taken_by(command):
        value = values.get(option.name)
        left_out = value is None or value is False or value == ()
        if is_analysis(option) and not left_out:
            given[option.keyword] = False if option.kind == "negation" else value
    return given


def is_analysis(option: Option) -> bool:
    """Whether it says how a model is analysed: a keyword of ``analyze()`` or of one of its sisters."""
    return any(
        option.keyword in keywords.__annotations__
        for keywords in (AnalyzeOptions, GenerateOptions, CapacityOptions, ApplyOptions)
    )
