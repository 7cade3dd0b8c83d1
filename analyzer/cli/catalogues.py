"""``analyze devices``, ``ops``, ``rules``, ``calibrate``, ``doctor``: facts of the program and the machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from analyzer.cli import EXIT_FAILED, EXIT_FINE, say
from analyzer.options import DEFAULT_GPU, PRICINGS
from analyzer.units import byte_count, rate, with_prefix

if TYPE_CHECKING:
    from analyzer.checks import CheckRule
    from analyzer.devices.calibration import Calibration
    from analyzer.devices.device import Device, Instance
    from analyzer.pipeline.doctor import MachineCheck

_SIGNS = {"works": "✓", "note": "!", "absent": "–", "broken": "✗"}


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=25.0, show_default=True, help="About how long."
)
@click.option("--threads", type=click.IntRange(min=1), help="Intra-op threads; default: one per core.")
@click.option("--no-gpu", is_flag=True, help="Leave the GPU out.")
@click.option("--show", is_flag=True, help="Show the saved calibration, measure nothing.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
def calibrate(seconds: float, threads: int | None, no_gpu: bool, show: bool, quiet: bool) -> None:
    """Measure this machine's ceilings and keep them.

    Products, bandwidth, elementwise operators and the rest run alone for a moment each, with one thread and
    with all. Measured ceilings replace the catalogue's in every later analysis for this machine, until its
    processor, its GPU or ONNX Runtime changes.
    """
    from analyzer.cli.options import progress
    from analyzer.devices import calibration as calibrations
    from analyzer.measurement.cpu_ceilings import measure_all
    from analyzer.run_folder import temporary_things_in_one_folder

    if show:
        calibration = calibrations.load()
        if calibration is None:
            click.echo("this machine is not calibrated: run `analyze calibrate`")
            return
    else:
        _check_threads(threads)
        measure = partial(measure_all, seconds=seconds, threads=threads, gpu=not no_gpu)
        # `devices` keeps ceilings and lies below `measurement`, which takes them: the two meet here.
        with temporary_things_in_one_folder(), progress(quiet=quiet) as on_progress:
            calibration = calibrations.calibrate(measure, progress=on_progress)
    if not quiet:
        say(_summary(calibration))


def _check_threads(threads: int | None) -> None:
    from analyzer.errors import UsageError
    from analyzer.measurement.machine_load import available_cores

    # Cores that this process may use: a container or taskset may allow fewer than there are.
    cores = available_cores()
    if threads is not None and threads > cores:
        raise UsageError(
            f"{threads} threads would take turns on {cores} cores: their rates would be no ceilings.",
            hint=f"Use --threads {cores} or less.",
        )


def _summary(calibration: Calibration) -> str:
    from analyzer.devices.calibration import disturbance, headlines

    width = max(len(name) for name, _ in headlines(calibration))
    lines = [f"{name:<{width}}  {figure}" for name, figure in headlines(calibration)]
    lines.append(f"{len(calibration.values)} figures of {calibration.date} in {calibration.path}")
    if disturbed := disturbance(calibration.values):
        lines.append(f"This CPU was {disturbed}: calibrate again on a quiet machine.")
    return "\n".join(lines)


@click.command()
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.pass_context
def doctor(ctx: click.Context, form: str, quiet: bool) -> None:
    """Say what this machine has, what works on it, and what to do about the rest.

    Versions, processors, drivers, CUDA libraries, calibration, folders; small models are run to see. Status 1
    where something is there and does not work.
    """
    from analyzer.cli.options import progress
    from analyzer.pipeline.doctor import examine

    with progress(quiet=quiet) as on_progress:
        checks = examine(on_progress)
    if form == "json":
        click.echo(json.dumps([asdict(check) for check in checks], indent=1, ensure_ascii=False))
    else:
        say("\n".join(_lines(checks)))
    ctx.exit(EXIT_FAILED if any(check.state == "broken" for check in checks) else EXIT_FINE)


def _lines(checks: tuple[MachineCheck, ...]) -> list[str]:
    lines: list[str] = []
    width = max(len(check.name) for check in checks)
    section = ""
    for check in checks:
        if check.section != section:
            section = check.section
            lines += ["", section[:1].upper() + section[1:]] if lines else [section[:1].upper() + section[1:]]
        lines.append(f"  {_SIGNS[check.state]} {check.name:<{width}}  {check.found}".rstrip())
        if check.hint:
            lines.append(f"    {'':<{width}}  {check.hint}")
    return lines


_UNDATED = "date not recorded"


@click.command()
@click.argument("name", required=False)
@click.option("--instances", "show_instances", is_flag=True, help="List the cloud instances and their prices.")
@click.option("--prices", type=click.Path(), help="TOML file whose [[instances]] replace or add prices.")
@click.option("--pricing", metavar="WAY", help=f"List instances paid so: {', '.join(PRICINGS)}.")
@click.option(
    "--region", metavar="NAME[,NAME...]", help="List instances of these regions, or us, europe, asia."
)
def devices(
    name: str | None, show_instances: bool, prices: str | None, pricing: str | None, region: str | None
) -> None:
    """List all devices, or show one with every figure and where it comes from.

    NAME is a slug or an alias in any case (l4, A100, epyc-9654), part of one (xeon lists them all), a cloud
    instance (g5.xlarge, with its price in every way of paying and region that is known) or its family (c7i),
    or FILE.toml[:NAME] for a file of your own.
    """
    from analyzer.pipeline.options import make_options
    from analyzer.pipeline.target_devices import offers_of

    priced = prices or pricing or region
    if name or show_instances or priced:
        rented = offers_of(make_options(prices=prices, pricing=pricing, region=region)).instances
        say(_named(name, rented) if name else _instances(rented))
    else:
        say(_listed_devices())


def _named(name: str, rented: tuple[Instance, ...]) -> str:
    """Return the device's page; else the instance, else the devices or instances whose names hold the word."""
    from analyzer.devices.catalogue import cpus, device, gpus
    from analyzer.errors import DeviceError
    from analyzer.toml_file import is_toml

    try:
        return _device_page(name, device(name), rented, from_own_file=is_toml(name))
    except DeviceError:
        word = name.strip().lower()
        named = [instance for instance in rented if instance.name.lower() == word]
        if named:
            return "\n".join(line for instance in named for line in _instance_page(instance))
        similar = [
            known for known in (*gpus(), *cpus()) if word and word in f"{known.slug} {known.name}".lower()
        ]
        if similar:
            return "\n".join([f"No device is called {name!r}; these contain it:", *map(_device_row, similar)])
        family = tuple(instance for instance in rented if word and word in instance.name.lower())
        if not family:
            raise
        return _instances(family)


def _listed_devices() -> str:
    from analyzer.devices.catalogue import DEFAULT_CPU, cpus, gpus

    lines = [
        "GPUs (dense peaks; * ONNX Runtime's release wheel has no machine code for it: predicted for reference)"
    ]
    lines += [_device_row(card) for card in gpus()]
    lines += ["", "CPUs (all cores together)"]
    lines += [_device_row(cpu) for cpu in cpus()]
    default = f"Without a GPU the target is {DEFAULT_GPU}; `analyze check` decides for the CPU {DEFAULT_CPU}."
    return "\n".join([*lines, "", default, "analyze devices NAME shows one; --instances lists cloud prices."])


def _device_row(device: Device) -> str:
    from analyzer.devices.catalogue import aliases

    half = device.peak_flops_per_s.get("fp16")
    flag = " " if device.runs_release_wheel else "*"
    others = ", ".join(aliases(device.slug))
    columns = (
        f"{device.slug:26}{flag}",
        f"{device.name[:34]:34}",
        f"fp32 {rate(device.peak_flops_per_s['fp32'], 'FLOP'):>13}",
        f"fp16 {rate(half, 'FLOP'):>13}" if device.kind == "gpu" else f"{device.units:>3} cores",
        f"{rate(device.bandwidth_bytes_per_s, 'B'):>10}",
        f"{byte_count(device.memory_bytes):>8}" if device.kind == "gpu" else "",
        others,
    )
    return "  " + "  ".join(column for column in columns if column)


def _device_page(name: str, device: Device, rented: tuple[Instance, ...], *, from_own_file: bool) -> str:
    from analyzer.devices.catalogue import aliases, figures

    lines = [f"{device.slug}: {device.name}"]
    names = () if from_own_file else aliases(device.slug)
    if names:
        lines.append(f"Also called {', '.join(names)}")
    if device.kind == "gpu" and not device.runs_release_wheel:
        lines.append("ONNX Runtime's release wheel has no machine code for it: predicted for reference only.")
    lines.append("")
    if device.like:
        lines += [f"Like {device.like} of the catalogue", ""]
    rows = [
        *((one.key, one.key, one.value, one.basis) for one in figures(name if from_own_file else device.slug)),
        *((f"measured {key}", SUSTAINED[key], value, "elsewhere") for key, value in device.sustained.items()),
        *(
            ("bus bandwidth", "bandwidth_bytes_per_s", value, f"given, among {gpus} GPUs")
            for gpus, value in device.bus_bandwidth.items()
        ),
    ]
    lines += [f"  {label:24} {figure_text(key, value):>22}  {basis}" for label, key, value, basis in rows]
    lines.append(_LEGEND)
    if device.link is not None:
        speed = figure_text("bandwidth_bytes_per_s", device.link.bandwidth_bytes_per_s)
        lines.append(f"\nLink {device.link.name}: {speed} ({device.link.source})")
    lines.append(f"\nSources: {device.source}")
    if device.notes:
        lines.append(f"Notes: {device.notes}")
    # A CPU's page leaves out machines that have a GPU as well: they are not rented for their CPU.
    carriers = [one for one in rented if device.slug == one.gpu or (device.slug == one.cpu and not one.gpu)]
    if carriers:
        lines += ["", "Rented as", *map(_instance_row, sorted(carriers, key=lambda one: one.usd_per_hour))]
    return "\n".join(lines)


_LEGEND = (
    "  (read: in the sources below; derived: by a formula from others; assumed: from a sibling;\n"
    "  elsewhere: measured by others on this model; given: by your file)"
)
SUSTAINED = {"fp16": "fp16", "bandwidth": "bandwidth_bytes_per_s"}
_BYTES = ("memory_bytes", "cache_bytes")
_UNITS = {"clock_hz": "Hz", "turbo_hz": "Hz", "tdp_w": "W", "memory_transfers_per_s": "T/s"}


def figure_text(key: str, value: object) -> str:
    """Return a figure of the catalogue with its unit; what is no number as it is."""
    from analyzer.precision import PEAK_TYPES

    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if key in PEAK_TYPES:
        return rate(value, "OP" if key == "int8" else "FLOP")
    if key == "bandwidth_bytes_per_s":
        return rate(value, "B")
    if key in _BYTES:
        return byte_count(value)
    return with_prefix(value, _UNITS[key]) if key in _UNITS else str(value)


def _instances(rented: tuple[Instance, ...]) -> str:
    from analyzer.report.figure_text import WAYS

    way = WAYS[rented[0].pricing]
    return "\n".join(
        [
            *map(_instance_row, rented),
            "",
            f"US dollars an hour {way}, with region and day of the price; several GPUs are rented together.",
            "analyze devices INSTANCE shows its other prices; --pricing and --region list those of all.",
        ]
    )


def _instance_page(instance: Instance) -> list[str]:
    """Return an instance and what it costs, in every way that is known, each price with its source."""
    from analyzer.devices.catalogue import prices_of
    from analyzer.report.figure_text import WAYS

    prices = prices_of(instance)
    cited = list(dict.fromkeys(price.source for price in prices))
    rows = [
        f"    {WAYS[price.pricing]:24} {price.region:16} ${price.usd_per_hour:<9g} "
        f"{price.price_date or _UNDATED:18} [{cited.index(price.source) + 1}]"
        for price in prices
    ]
    sources = [f"    [{at}] {source}" for at, source in enumerate(cited, start=1)]
    lines = [_instance_row(instance), "  US dollars an hour:", *rows, "  Sources:", *sources]
    if any(price.pricing == "spot" for price in prices):
        lines.append("  A spot machine may be taken away at any time, and its price changes from day to day.")
    return lines


def _instance_row(instance: Instance) -> str:
    gpus = f"{instance.gpu_count:g} x {instance.gpu}" if instance.gpu else ""
    hardware = gpus or instance.accelerator or instance.cpu or instance.cpu_type
    date = instance.price_date or _UNDATED
    size = f"{instance.vcpus or '?'} vCPUs, {byte_count(instance.memory_bytes)}"
    price = f"${instance.usd_per_hour:<9g} {instance.region:15} {date}"
    return f"  {instance.provider:8} {instance.name:32} {hardware:30} {size:22} {price}"


@click.command()
@click.argument("operators", nargs=-1, metavar="[OPERATOR]...")
@click.option("--domain", help="List one domain only, e.g. com.microsoft.")
def ops(operators: tuple[str, ...], domain: str | None) -> None:
    """List the cost rules with formula and basis, or explain each OPERATOR.

    \b
    analyze ops                      all rules, by family
    analyze ops Conv                 the rules for Conv in every domain
    analyze ops com.microsoft::MoE   one rule
    """  # noqa: D301 - Click wants the escape, not a backslash
    from analyzer.costs import explain

    if operators:
        click.echo("\n\n".join(explain(operator) for operator in operators))
    else:
        click.echo("\n".join(_listed_operators(domain)))


def _listed_operators(domain: str | None) -> list[str]:
    from analyzer.costs import by_family
    from analyzer.errors import UsageError
    from analyzer.graph import DEFAULT_DOMAIN

    lines: list[str] = []
    count = 0
    for family, rules in by_family().items():
        chosen = [rule for rule in rules if domain in (None, rule.domain)]
        if not chosen:
            continue
        count += len(chosen)
        lines.append(f"\n{family.replace('_', ' ')}")
        for rule in chosen:
            name = rule.op_type if rule.domain == DEFAULT_DOMAIN else f"{rule.domain}::{rule.op_type}"
            lines.append(f"  {name:<44} {rule.basis:<9} {rule.formula}")
    if not count:
        raise UsageError(f"no rule is of the domain '{domain}'", hint="`analyze ops` lists all domains")
    head = f"{count} rules. FLOPs: 1 for an addition or a multiplication, 2 for a multiply-accumulate; dense."
    return [head, "`analyze ops OPERATOR` explains one.", *lines]


@click.command()
@click.argument("code", required=False)
def rules(code: str | None) -> None:
    """List the rules of `analyze check`, or explain one: what it finds, why it matters, how to fix it.

    CODE is a rule's code or name: A101, no-cuda-kernel.
    """
    from analyzer.checks import find

    click.echo(_rule_page(find(code)) if code else _listed_rules())


def _listed_rules() -> str:
    from analyzer import checks

    lines = []
    width = max(len(rule.name) for rule in checks.rules())
    for prefix, family in checks.FAMILIES.items():
        lines.append(f"{prefix}xx {family}")
        lines += [
            f"  {rule.code}  {rule.severity:7}  {rule.name:{width}}  {rule.title}"
            for rule in checks.rules()
            if rule.code.startswith(prefix)
        ]
        lines.append("")
    return "\n".join([*lines, "analyze rules CODE explains one."])


def _rule_page(rule: CheckRule) -> str:
    parts = [f"{rule.code} {rule.name} ({rule.severity})", rule.title]
    for heading, text in (
        ("What it finds", rule.what),
        ("Why it matters", rule.why),
        ("How to fix it", rule.fix),
        ("Example", rule.example),
    ):
        parts.append(heading + "\n" + "\n".join(f"  {line}".rstrip() for line in text.splitlines()))
    return "\n\n".join(parts)
