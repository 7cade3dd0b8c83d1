"""Every option, once: declared in groups, whose instances hold the converted values.

The commands, the settings file, the keywords of the Python functions, the question in a record, the
command that asks it again and the reference page derive from these declarations. ``option_kinds`` says how a
kind of value is read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from analyzer.option_kinds import (
    ABOVE_ZERO,
    DEVICE,
    DEVICES,
    DURATION,
    FLAG,
    LATENCIES,
    LATENCY,
    NAMES,
    NEGATION,
    NUMBER,
    OPSET,
    OUTPUT,
    PATH,
    REPEATED,
    SHARE,
    TEXT,
    WHOLE,
    WHOLES,
    Command,
    Option,
    OptionGroup,
    SettingsTable,
    left_out,
    option,
)
from analyzer.text import did_you_mean

if TYPE_CHECKING:
    from analyzer.checks.settings import Ignore
    from analyzer.loading.model_reference import Argument
    from analyzer.loading.python.input_spec import InputSpec
    from analyzer.reading import Limits

Documented = TypeVar("Documented", bound=Callable[..., Any])
Pricing = Literal["on-demand", "reserved-1y", "reserved-3y", "spot"]
Objective = Literal["latency", "throughput", "cost", "energy"]
Weights = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4"]
Cache = Literal["fp32", "fp16", "bf16", "fp8", "int8"]
LaunchMode = Literal["session", "graph"]
PlanName = Literal["cpu", "gpu", "hybrid"]

# The ways of paying for a rented machine; the first is the usual one.
PRICINGS: tuple[Pricing, ...] = get_args(Pricing)
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
# A model's own may be wider: nothing is widened.
WEIGHTS: tuple[Weights, ...] = get_args(Weights)[1:]
CACHES: tuple[Cache, ...] = get_args(Cache)[1:]
LAUNCHES: tuple[LaunchMode, ...] = get_args(LaunchMode)
PLANS: tuple[PlanName, ...] = get_args(PlanName)
# In the order in which they are applied.
FIXES = ("fusions", "last-logits")
# Options of ONNX Runtime's CUDA provider.
CUDA_GRAPH, NHWC = PROVIDER_OPTIONS = ("enable_cuda_graph", "prefer_nhwc")
ALL = "all"
# The device of a decision where this machine has no GPU.
DEFAULT_GPU = "l4"
# For each batch and device.
DEFAULT_TIME_BUDGET_S = 10.0

_EVERYWHERE: tuple[Command, ...] = ("run", "check", "render", "generate", "capacity", "fleet")
_MODEL_READING: tuple[Command, ...] = ("run", "check", "capacity", "apply")
_MEASURING: tuple[Command, ...] = ("run", "check", "generate", "capacity", "apply", "fleet")
_DECIDING: tuple[Command, ...] = ("run", "check", "render", "fleet")
# Far beyond what is ever meant: options may come with a stranger's model, and a run comes to an end.
_MOST_RUNS, _MOST_TOKENS, _LEAST = 10**6, 2**24, 1e-6
_WAYS = ", ".join(PRICINGS)
_ANSWERED = "requests are answered within this, waiting included, like 50ms."
_PLACES = "Where instances are rented: regions of the providers, or us, europe, asia."


class Options(OptionGroup):
    """A model, its devices, and how it is analysed."""

    batches: tuple[int, ...] = option(
        "batch N[,N...]",
        WHOLES,
        "Batch size(s); the report is about the first, all are measured.",
        _MEASURING,
        spellings=("batch-size",),
        default=(),
        most=100,
        hint="For example --batch 64.",
        helps={
            "check": "Batch size; with several, the first is checked.",
            "apply": "Batch size that the session is for.",
            "capacity": "Batch size(s) of the model's own report; traffic is batched as suits it.",
            "fleet": "Batch size(s) of all models. [each model's own]",
            "generate": "Sequences at once; the report is about the first. [1; with limits: searched]",
        },
    )
    inputs: tuple[InputSpec, ...] = option(
        "input NAME=SHAPE[:DTYPE][=VALUES]",
        REPEATED,
        "One input, B for the batch; values as =64 or =0..29999; repeatable.",
        _MODEL_READING,
    )
    input_data: Path | None = option(
        "input-data FILE",
        PATH,
        "Shapes, types and values of inputs from a .npz file, or a .npy file of the one input.",
        _MODEL_READING,
    )
    arguments: tuple[Argument, ...] = option(
        "arg NAME=VALUE",
        REPEATED,
        "Argument of the class or function that builds the model: a literal, else text; repeatable.",
        (*_MODEL_READING, "generate", "fleet"),
    )
    script_arguments: tuple[str, ...] = option(
        "script-arg ARG",
        REPEATED,
        "Argument that the script itself sees; `-- ARG...` behind all options gives several; repeatable.",
        (*_MODEL_READING, "generate"),
    )
    gpus: tuple[str, ...] | None = option(
        "gpu NAME[,NAME...]",
        DEVICES,
        f"Target GPU(s); `all` of the catalogue; `none`: CPU only. [this machine's, else {DEFAULT_GPU}]",
        (*_EVERYWHERE, "apply"),
        hint="`analyze devices` lists them; `all` takes every one, `none` looks at the CPU alone.",
        helps={
            "apply": f"GPU that the session is for. [this machine's, else {DEFAULT_GPU}]",
            "capacity": "GPU(s) whose instances are looked at; none for CPUs alone. [all that are rented]",
            "check": "Target GPU(s), each held against the budgets; `all` of the catalogue; `none`: CPU only.",
            "fleet": f"Target GPU(s), a column each; or `all`. [this machine's, else {DEFAULT_GPU}]",
            "generate": f"Target GPU(s) of the catalogue; with several those are compared. [{DEFAULT_GPU}]",
            "render": "Decide for these GPUs of the catalogue, or `all`, instead of the record's.",
        },
    )
    cpu: str | None = option(
        "cpu NAME",
        DEVICE,
        "Target CPU of the catalogue. [this machine]",
        (*_EVERYWHERE, "apply"),
        helps={
            "capacity": "CPU whose instances are looked at. [all that are rented]",
            "check": "Target CPU of the catalogue; default: a fixed one, the same on every runner.",
            "render": "Decide for this CPU of the catalogue.",
        },
    )
    precision: str | None = option(
        "precision P",
        TEXT,
        "fp32, tf32, fp16, bf16, int8 or int4 (weights). [the model's own]",
        (*_DECIDING, "capacity", "apply"),
        helps={
            "apply": "fp16 or int8 convert the model; fp32 turns TF32 off. [the model's own]",
            "render": "Decide for fp32, tf32, fp16, bf16, int8 or int4.",
        },
    )
    state: tuple[tuple[str, str], ...] | None = option(
        "state IN=OUT",
        REPEATED,
        "Output that is an input's next value and stays on the device (a cache); repeatable. [found]",
        _MODEL_READING,
    )
    has_state: bool = option(
        "no-state",
        NEGATION,
        "Nothing stays on the device from run to run: caches are copied like any input.",
        _MODEL_READING,
    )
    opset: int | None = option(
        "opset N",
        OPSET,
        "Opset of the export; for an .onnx file the one to convert to. [20]",
        (*_MODEL_READING, "fleet"),
        hint="For example --opset 20.",
        helps={"apply": "Opset of the model that is written; `auto` takes the fastest. [20]"},
    )
    onnxruntime: str | None = option(
        "onnxruntime VERSION",
        TEXT,
        "Release of ONNX Runtime whose kernels place operators, like 1.29. [the newest known]",
        ("run", "check", "apply", "fleet"),
        helps={"apply": "Release of ONNX Runtime that the session is for, like 1.29. [the newest known]"},
    )
    run: bool = option(
        "no-run",
        NEGATION,
        "Execute nothing: counts and predictions only.",
        ("run", "generate", "capacity", "apply"),
        helps={"apply": "Time nothing; numbers are compared all the same."},
    )
    runs: int | None = option(
        "runs N",
        WHOLE,
        "Exact number of timed runs.",
        _MEASURING,
        most=_MOST_RUNS,
        helps={"check": "How many runs to measure, with --run."},
    )
    time_budget_s: float = option(
        "time-budget S",
        DURATION,
        f"Seconds to measure for, each batch. [{DEFAULT_TIME_BUDGET_S:g}]",
        _MEASURING,
        default=DEFAULT_TIME_BUDGET_S,
        most=3600,
        hint="Figures hardly change after a minute.",
        helps={"check": "Seconds to measure for, with --run."},
    )
    threads: int | None = option(
        "threads N",
        WHOLE,
        "Intra-op threads of the CPU.",
        _MEASURING,
        most=_MOST_RUNS,
        helps={"check": "Intra-op threads, with --run."},
    )
    training: bool = option(
        "training", FLAG, "One training step instead of inference.", ("run", "check", "fleet")
    )
    # On the command line alone: what limits a file may not come with the file.
    limits: Limits = option(
        "limit NAME=VALUE",
        REPEATED,
        "Raises what reading a file may take, like memory=8GB, time=5min, nodes=2000000; repeatable.",
        _MEASURING,
        question=False,
        settings="",
    )
    dataset_size: int | None = option(
        "dataset-size N", WHOLE, "Examples in an epoch, for time and cost per epoch.", ("run",), most=10**15
    )
    objective: Objective = option(
        "objective O",
        TEXT,
        "latency, throughput, cost or energy. [latency]",
        (*_DECIDING, "apply"),
        default="latency",
        choices=OBJECTIVES,
        helps={"render": "Decide by latency, throughput, cost or energy."},
    )
    slo_s: float | None = option(
        "slo TIME", LATENCY, "Latency that must be met, with its unit: 20ms, 1.5s.", (*_DECIDING, "apply")
    )
    pins: tuple[str, ...] = option(
        "pin PATTERN=cpu|gpu",
        REPEATED,
        "Binds operators in the best plan; repeatable.",
        ("run", "check", "render", "apply"),
    )
    prices: Path | None = option("prices FILE", PATH, "Your own instance prices (TOML).", _EVERYWHERE)
    pricing: Pricing = option(
        "pricing WAY",
        TEXT,
        f"How instances are paid: {_WAYS}. [{PRICINGS[0]}]",
        _EVERYWHERE,
        default=PRICINGS[0],
        choices=PRICINGS,
        helps={"render": f"How instances are paid: {_WAYS}."},
    )
    regions: tuple[str, ...] = option(
        "region NAME[,NAME...]",
        NAMES,
        f"{_PLACES} [one of each]",
        _EVERYWHERE,
        default=(),
        hint="For example --region europe, or eu-west-1,westeurope.",
        helps={"render": _PLACES},
    )
    utilisation: float = option(
        "utilisation U",
        NUMBER,
        "Share of rented time in use, for prices. [1]",
        _DECIDING,
        spellings=("utilization",),
        default=1.0,
        least=_LEAST,
        most=1,
        hint="Half of the time is 0.5.",
        helps={"render": "Share of rented time in use, for prices."},
    )
    # Not part of the question: a cached export is the same graph.
    cache: bool = option(
        "no-cache",
        NEGATION,
        "Export afresh.",
        (*_MODEL_READING, "generate", "fleet"),
        question=False,
        after="force",
    )
    # The keyword by which `analyze check` calls: the same result on every machine, without calibration.
    fixed: bool = option("check", FLAG, "", (), question=False, settings="")

    @property
    def batch(self) -> int | None:
        """The batch that the report is for."""
        return self.batches[0] if self.batches else None


class ExecutionOptions(OptionGroup, commands=("check", "fleet"), settings=""):
    """Switch off execution in commands that execute by default."""

    run: bool = option(
        "run",
        FLAG,
        "Execute and measure here. By default nothing is executed.",
        switch=True,
        after="no-run",
        helps={"fleet": "Measure each model on the devices that are there. By default nothing is executed."},
    )


class ApplyOptions(OptionGroup, commands=("apply",)):
    """The plan that is written, and how its model is rewritten before."""

    plan: PlanName | None = option(
        "plan P",
        TEXT,
        "cpu, gpu or hybrid (the best split). [the verdict's; with --pin hybrid]",
        choices=PLANS,
        after="pin",
    )
    fixes: tuple[str, ...] = option(
        "fix NAME[,NAME...]",
        NAMES,
        "Rewrites the model first: fusions, last-logits, or all that apply. [none]",
        default=(),
        choices=(*FIXES, ALL),
        hint=f"One of {', '.join((*FIXES, ALL))}.",
        after="plan",
    )
    provider_options: tuple[str, ...] = option(
        "provider-option NAME[,NAME...]",
        NAMES,
        "Options of the CUDA provider to turn on, for the plan gpu: enable_cuda_graph, prefer_nhwc. [none]",
        default=(),
        choices=PROVIDER_OPTIONS,
        hint=f"One of {', '.join(PROVIDER_OPTIONS)}.",
        after="fix",
    )


class GenerationOptions(OptionGroup, commands=("generate", "capacity", "fleet")):
    """A request of a model that generates, and its limits; of several batches the first is the answer's."""

    batches: tuple[int, ...] = ()  # of `Options`; with limits and none, the largest that keeps them is searched
    prompt: int | None = option(
        "prompt N",
        WHOLE,
        "Tokens of each sequence that are given. [1024, or as many as the model takes]",
        most=_MOST_TOKENS,
    )
    output: int | None = option(
        "output-tokens N", WHOLE, "Tokens of each sequence that are made. [256]", most=_MOST_TOKENS
    )
    gpus: int | None = option(
        "gpus N",
        WHOLE,
        "GPUs that share the model (tensor parallel). [the fewest that hold it; with limits: searched]",
        most=8,
    )
    weights: Weights | None = option(
        "weights T",
        TEXT,
        "Type of the layers' weights: fp16, bf16, fp8, int8 or int4. [the model's own]",
        choices=WEIGHTS,
    )
    cache: Cache | None = option(
        "kv T", TEXT, "Type of the cache: fp16, bf16, fp8 or int8. [16 bits]", choices=CACHES
    )
    launch: LaunchMode = option(
        "launch L",
        TEXT,
        "session (node by node) or graph (one replay of a CUDA graph). [session]",
        default="session",
        choices=LAUNCHES,
    )
    ttft_s: float | None = option("ttft TIME", LATENCY, "Longest time to the first token, like 500ms.")
    tpot_s: float | None = option("tpot TIME", LATENCY, "Longest time of each further token, like 30ms.")


class TrafficOptions(OptionGroup, commands=("capacity",)):
    """Requests to a service, the limit that they are answered within, and what must be left over."""

    rate_per_s: float | None = option(
        "rate N",
        NUMBER,
        "Requests a second, each of them one inference. [a trace's own]",
        least=_LEAST,
        most=1e9,
        hint="Requests a second, like --rate 500.",
    )
    p50: float | None = option("p50 TIME", LATENCY, f"Half of the {_ANSWERED}")
    p90: float | None = option("p90 TIME", LATENCY, f"90 of 100 {_ANSWERED}")
    p95: float | None = option("p95 TIME", LATENCY, f"95 of 100 {_ANSWERED}")
    p99: float | None = option("p99 TIME", LATENCY, f"99 of 100 {_ANSWERED}")
    mean: float | None = option(
        "mean TIME", LATENCY, "Requests are answered within this on average, waiting included."
    )
    arrivals: Path | None = option(
        "arrivals poisson|FILE",
        PATH,
        "Poisson, or a CSV file with seconds since the start in its first column. [poisson]",
    )
    max_batch: int | None = option(
        "max-batch N",
        WHOLE,
        "Most requests in a batch. [chosen]",
        most=10**9,
        hint="For example --max-batch 32; left out, it is chosen.",
    )
    max_delay_s: float | None = option(
        "max-delay TIME",
        LATENCY,
        "How long the oldest request may wait for its batch to fill, like 2ms. [chosen]",
        least=0,
    )
    headroom: float = option(
        "headroom SHARE",
        SHARE,
        "Share of the rate that must stay free, like 20%. [0]",
        default=0.0,
        most=1e6,
    )
    growth: float = option(
        "growth X",
        NUMBER,
        "Times the rate that is planned for. [1]",
        default=1.0,
        least=_LEAST,
        most=1e6,
        hint="2 is twice the rate.",
    )
    spare: int = option(
        "spare N",
        WHOLE,
        "Instances that may fail. [0]",
        default=0,
        least=0,
        most=10**6,
        hint="How many instances may fail at once, like --spare 1.",
    )


class GateOptions(OptionGroup, commands=("check",), settings="tool.analyzer.check", is_keyword=False):
    """Failures of `analyze check`; ``checks.settings`` converts values of several kinds."""

    fail_on: str = option(
        "fail-on",
        REPEATED,
        "error (default), warning, note or never; or codes that become errors.",
        ("check", "fleet"),
        default="error",
        helps={"fleet": "error: exit status 1 where a model failed. [never]"},
    )
    raise_to_warning: tuple[str, ...] = option("warn-on", REPEATED, "Codes that become warnings.")
    fail_on_uncertain: bool = option(
        "fail-on-uncertain",
        FLAG,
        "Findings whose interval crosses their threshold may be errors; in the settings file alone.",
        (),
    )
    ignore: tuple[Ignore, ...] = option(
        "ignore", REPEATED, "Codes to set aside; [tool.analyzer.check] takes patterns and reasons."
    )
    max_cpu_operators: int | None = option(
        "max-cpu-operators", WHOLE, "Most operators forced to the CPU.", least=0, hint="Write 0 for none."
    )
    max_copies: int | None = option(
        "max-copies", WHOLE, "Most copies inside the graph.", least=0, hint="Write 0 for none."
    )
    max_latency_s: Mapping[str, float] = option(
        "max-latency TIME", LATENCIES, "Longest latency, with its unit: 20ms, 1.5s.", choices=PLANS
    )
    max_ttft_s: float | None = option(
        "max-ttft TIME", LATENCY, "Longest time to the first token of a record of `generate`, like 500ms."
    )
    max_tpot_s: float | None = option(
        "max-tpot TIME", LATENCY, "Longest time of each further token of a record of `generate`, like 30ms."
    )
    min_tokens_per_s: float | None = option(
        "min-tokens-per-s N",
        ABOVE_ZERO,
        "Fewest tokens a second of a record of `generate`, over the whole batch.",
    )
    max_usd_per_month: float | None = option(
        "max-usd-per-month N", ABOVE_ZERO, "Most dollars a month of a record of `capacity`."
    )
    min_rate: float | None = option(
        "min-rate N", ABOVE_ZERO, "Requests a second that a record of `capacity` must take within its limit."
    )
    baseline: Path | None = option(
        "baseline", PATH, "File, or folder with one a model, of figures that may not rise."
    )
    fail_on_better: bool = option(
        "fail-on-better",
        FLAG,
        "Fail too where a figure fell below the baseline: a model that shrank by mistake.",
    )
    # An act, not a question: in a settings file every check would write its own baseline and pass.
    update_baseline: bool = option(
        "update-baseline",
        FLAG,
        "Write the baseline. [analyzer-baseline.json; of several analyzer-baseline/]",
        question=False,
        settings="",
    )
    tolerance: float = option(
        "tolerance", SHARE, "Share by which a figure may differ from the baseline's, like 2%.", default=0.0
    )


class ReportOptions(OptionGroup, question=False, is_keyword=False):
    """Reports to write, their places, and messages meanwhile."""

    formats: tuple[str, ...] = option(
        "format F[,F...]",
        NAMES,
        "html, json, markdown, csv, junit, sarif, github, text, model-card, model-explorer; svg, png: a "
        "picture of each chart. [html,json]",
        ("run", "check", "render", "generate", "capacity"),
        helps={
            "check": "text, json, sarif, junit, github, markdown, ... [text]",
            "render": "html, json, markdown, csv, text, junit, sarif, github, model-card, model-explorer; svg, "
            "png: a picture of each chart. [html]",
        },
        default="html,json",
        defaults={"check": "text", "render": "html"},
    )
    charts: tuple[str, ...] | None = option(
        "chart NAME[,NAME...]",
        NAMES,
        "Charts that svg and png draw: roofline, timeline, ... [all]",
        ("run", "render", "generate", "capacity"),
    )
    output: str | None = option(
        "output PATH",
        OUTPUT,
        "File (x.html is that format), or folder for several; - is standard output. [reports/]",
        (*_EVERYWHERE, "apply"),
        helps={
            "apply": "Folder to write: the model, its weights, session.json, run.py, apply.json.",
            "check": "File (x.json is that format), folder for several; `-` is standard output (the default).",
            "fleet": "Folder to write: index.html, fleet.json, fleet.csv, a record and a page of each model.",
            "render": "File (x.md is Markdown), folder for several; - is standard output. [next to the record]",
        },
    )
    # On the command line alone, as what comes with a model may neither lose files nor start programs.
    force: bool = option(
        "force",
        FLAG,
        "Replace files that are no reports of this program.",
        (*_EVERYWHERE, "apply"),
        settings="",
        helps={"apply": "Write into a folder that is not empty."},
    )


class FleetOptions(OptionGroup, commands=("fleet",), settings="", question=False, is_keyword=False):
    """The place of a fleet's work, and its time limits."""

    on: str = option(
        "on WHERE",
        TEXT,
        "local, ray (a cluster that is there, else one started here) or ray://HOST:PORT. [local]",
    )
    jobs: int | None = option("jobs N", WHOLE, "Models at once. [as many as cores and memory allow]")
    timeout_s: float = option("timeout SECONDS", NUMBER, "Longest time of one model. [900]")
    retry_failed: bool = option("retry-failed", FLAG, "Try models again that failed before.")
    compare: str | None = option(
        "compare OLD", TEXT, "Say what changed since OLD, an earlier fleet's folder or fleet.json."
    )


class TerminalOptions(OptionGroup, question=False, is_keyword=False):
    """Output besides the reports."""

    open: bool = option(
        "open",
        FLAG,
        "Open the page in a browser.",
        ("run", "render", "generate", "capacity", "fleet"),
        settings="",
    )
    quiet: bool = option(
        "quiet",
        FLAG,
        "Nothing but errors on standard error.",
        (*_EVERYWHERE, "apply"),
        helps={"check": "No progress on standard error.", "render": "Do not print where reports went."},
    )
    verbose: bool = option(
        "verbose",
        FLAG,
        "Findings and times of all stages as well.",
        ("run", "check", "generate", "capacity", "fleet"),
        helps={"fleet": "What each model took, and why one failed.", "check": "More about what is happening."},
    )


def _in_order(groups: Iterable[type[OptionGroup]]) -> tuple[Option, ...]:
    """Return the options of all groups as the help lists them."""
    ordered: list[Option] = []
    for one in sorted(
        (one for group in groups for one in group.declared.values()), key=lambda one: bool(one.after)
    ):
        names = [before.name for before in ordered]
        ordered.insert(names.index(one.after) + 1 if one.after else len(ordered), one)
    return tuple(ordered)


# In the order of the help.
OPTIONS = _in_order(OptionGroup.__subclasses__())


def taken_by(command: Command) -> tuple[Option, ...]:
    """Return the options of a command, in the order of its help."""
    return tuple(one for one in OPTIONS if command in one.commands)


def keywords_of(command: Command) -> tuple[str, ...]:
    """Return the keywords of a command's function."""
    return tuple(dict.fromkeys(one.keyword for one in taken_by(command) if one.is_keyword))


def in_settings(table: SettingsTable) -> tuple[Option, ...]:
    """Return the options that may stand in a table of pyproject.toml."""
    return tuple(one for one in OPTIONS if one.settings == table)


def given_keywords(values: Mapping[str, Any], command: Command) -> dict[str, Any]:
    """Return keywords of a command's function from values by long option, without those left out."""
    return {
        one.keyword: values[one.name] if not one.kind.is_flag or one.kind is FLAG else False
        for one in taken_by(command)
        if one.is_keyword and not left_out(values.get(one.name))
    }


def require_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a keyword that a function does not take, with the nearest that it takes.

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
        hint = f"Write {negated}=False."
    else:
        hint = did_you_mean(unknown.lower(), known, f"It takes {', '.join(sorted(known))}.")
    raise TypeError(f"{function}() has no option {unknown!r}. {hint}")


def takes_options(command: Command) -> Callable[[Documented], Documented]:
    """Let a function refuse keywords that its command lacks, and ``inspect.signature`` name those that it has.

    Defaults are shown as ``...``: an option that is left out is not the same as one that is None. A type
    checker sees ``**options: Any``: no static type follows from a declaration of converted values, and a list
    of keywords for it alone would be a second one.
    """
    types: dict[str, str] = {}
    for one in taken_by(command):
        if one.is_keyword:
            # `--no-state` is state=False, `--state` the same keyword with names.
            types[one.keyword] = " | ".join(filter(None, (types.get(one.keyword), one.kind.python)))

    def mark(function: Documented) -> Documented:
        signature = inspect.signature(function)
        own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=annotation)
            for name, annotation in types.items()
        ]

        @functools.wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            require_keywords(function.__name__, given, (*types, *(item.name for item in own)))
            return function(*arguments, **given)

        checked.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return checked  # type: ignore[return-value]

    return mark
