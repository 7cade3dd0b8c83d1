"""Devices of the decision, and machines for rent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from analyzer.devices import catalogue
from analyzer.devices.device import Device, Instance
from analyzer.errors import UsageError
from analyzer.graph import Graph, Tensor
from analyzer.options import ALL, DEFAULT_GPU, Options
from analyzer.precision import INTEGER_FORMS, floats_on_gpu, full_on_cuda, own_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The machines for rent.

    ``own`` is what the user's own price list says, whatever was asked for: a record keeps it.
    """

    instances: tuple[Instance, ...]
    own: tuple[Instance, ...]


def offers_of(options: Options, *, own: Iterable[Instance] = ()) -> Offers:
    """Return the catalogue's machines, and the options' price list or else ``own``.

    Raises:
        DeviceError: A hole in the list, a region that nobody knows, or no price at all for what is asked.
    """
    listed = catalogue.own_offers(options.prices, own=own)
    result = catalogue.instances(own=listed, pricing=options.pricing, regions=options.regions)
    return Offers(instances=result, own=listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The CPU and the GPUs, the verdict's first.

    Attributes:
        cpu: The CPU of the decision.
        gpus: Target GPUs; empty with ``--gpu none``.
        local_gpu: Whether the first is the one in this machine, so that it can be measured.
        local_cpu: Whether the CPU is this machine's.
        default_gpu: The GPU that nobody named and this machine lacks; None for any other.
    """

    cpu: Device
    gpus: tuple[Device, ...]
    local_gpu: bool
    local_cpu: bool
    default_gpu: str | None = None


def find_targets(options: Options) -> Targets:
    """Look the devices up.

    Raises:
        DeviceError: A name that nobody knows, with the nearest in the hint; a price list or region of no use.
        UsageError: More threads than the CPU runs at once.
    """
    # Here, before anything is read or run: prices are asked for at the end.
    offers_of(options)
    # `check` decides the same on every runner: it asks this machine nothing, neither its GPU nor its CPU.
    this_gpu = None if options.fixed else gpu_of_this_machine()
    if options.cpu is not None:
        cpu = catalogue.device_of_kind(options.cpu, "cpu")
    elif options.fixed:
        cpu = catalogue.device(catalogue.DEFAULT_CPU)
    else:
        from analyzer.devices.detection import this_cpu

        cpu = this_cpu()
    if options.threads is not None and options.threads > cpu.threads:  # they would only wait for each other
        raise UsageError(
            f"--threads {options.threads}: {cpu.name} runs {cpu.threads} at once.",
            hint=f"At most --threads {cpu.threads}; left out, it is one for each core.",
        )
    if options.gpus is None:
        gpus: tuple[Device, ...] = (this_gpu or catalogue.device(DEFAULT_GPU),)
    else:
        gpus = named_gpus(options.gpus, fixed=options.fixed)
    # Only the verdict's GPU is measured: what was measured on it does not hold beside another one.
    first_is_local = bool(this_gpu and gpus and gpus[0].slug == this_gpu.slug)
    return Targets(
        cpu=cpu,
        gpus=gpus,
        local_gpu=first_is_local,
        local_cpu=options.cpu is None and not options.fixed,
        default_gpu=gpus[0].slug if options.gpus is None and this_gpu is None else None,
    )


def named_gpus(names: Iterable[str], *, fixed: bool) -> tuple[Device, ...]:
    """Return the GPUs of these names, each once, in their order.

    With ``fixed`` this machine is not asked, as by a check.

    ``all`` stands for this machine's GPU, else the default one, and behind it the whole catalogue, so far as
    anything can be decided for it.

    Raises:
        DeviceError: A name that nobody knows; the hint names the nearest.
    """
    by_slug: dict[str, Device] = {}
    for name in names:
        if name.lower() == ALL:
            usual = (None if fixed else gpu_of_this_machine()) or catalogue.device(DEFAULT_GPU)
            # Without a link nothing is known of copies, and no plan has a latency.
            result = (usual, *(gpu for gpu in catalogue.gpus() if gpu.link is not None))
        else:
            result = (catalogue.device_of_kind(name, "gpu"),)
        for gpu in result:
            by_slug.setdefault(gpu.slug, gpu)
    return tuple(by_slug.values())


def measures_here(options: Options, targets: Targets) -> bool:
    """Return whether anything runs: a device is in this machine, and running is allowed."""
    return options.run and (targets.local_cpu or targets.local_gpu)


def gpu_of_this_machine() -> Device | None:
    """Return the GPU in this machine, as it is or as it was calibrated; None where there is none."""
    from analyzer.devices.detection import local_gpu

    return local_gpu()


def model_precision(graph: Graph) -> str:
    """Return the type in which most of the model's weights are kept; that of its inputs where it has none.

    Quantised weights count as the floats that they stand for: next to them scales and biases are few.
    """
    known = _OWN_PRECISIONS.get(graph)
    if known is None:
        stored: tuple[Tensor, ...] = graph.initializers
        if any(_is_quantised(tensor) for tensor in stored):
            stored = (*stored, *_dequantised(graph))
        floats = [tensor for tensor in stored if not tensor.dtype.is_packed]
        known = _OWN_PRECISIONS[graph] = own_precision(floats or graph.inputs)
    return known


# Asked for each GPU at each batch, and of a graph always the same.
_OWN_PRECISIONS: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()


def _is_quantised(tensor: Tensor) -> bool:
    return tensor.dtype.is_packed and tensor.dtype.bits is not None and 1 < tensor.dtype.bits <= 8


def _dequantised(graph: Graph) -> Iterator[Tensor]:
    """Yield the floats that narrow weights stand for, in the type of what they become, else of their scales."""
    for node in graph.nodes:
        stored = [tensor for tensor in node.present_inputs if tensor.constant]
        weights = next((tensor for tensor in stored if _is_quantised(tensor) and tensor.rank), None)
        if weights is None:
            continue
        floats = (tensor.dtype for tensor in (*node.present_outputs, *stored) if not tensor.dtype.is_packed)
        dtype = next(floats, None)
        if dtype is not None:
            yield replace(weights, dtype=dtype)


def decision_precision(options: Options, graph: Graph, gpu: Device | None) -> str:
    """Return the precision of the floats: the user's, else the model's own; TF32 for fp32 where the GPU has it.

    Of an integer form, whose graph holds integers of their own types, that of what stays floats.
    """
    if options.precision in INTEGER_FORMS:
        narrow = floats_on_gpu(options.precision, gpu.peak_flops_per_s) if gpu is not None else None
        if narrow is not None:
            return narrow
    elif options.precision is not None:
        return options.precision
    own = model_precision(graph)
    # ONNX Runtime's CUDA provider rounds float32 products to TF32 unless told not to: `use_tf32` is 1 in
    # onnxruntime/core/providers/cuda/cuda_execution_provider_info.h.
    return full_on_cuda(gpu.peak_flops_per_s) if own == "fp32" and gpu is not None else own
