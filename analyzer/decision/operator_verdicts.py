"""A verdict for each operator, explained from its own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from analyzer.costs.cost import Cost
from analyzer.decision.decision_input import DecisionInput, Side
from analyzer.decision.error_components import component, ratio
from analyzer.decision.pins import pins_by_operator
from analyzer.decision.placement_problem import HOST
from analyzer.decision.plans import CopyEnd, Plans, copy_time
from analyzer.decision.reasons import capital, cpu_name, gpu_name, timed
from analyzer.graph import Node
from analyzer.ort.execution import Direction, NodePlacement
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import OperatorDevice, OperatorVerdict
from analyzer.units import byte_count, digits, flop_count, seconds

# Why an operator is better off where it is. The slugs after `unknown` are ONNX Runtime's own reasons, see
# `ort.execution.NodePlacement.why`.
REASONS = (
    "compute-bound",  # its own instructions decide
    "memory-bound",  # memory bandwidth decides
    "launch-bound",  # starting the kernel on the GPU decides
    "faster",  # one side is, and what limits either is not known
    "transfer-bound",  # the copies would cost more than the GPU saves
    "data-on-gpu",  # slower than on the CPU, yet cheaper than copying
    "within-error",  # the interval of the ratio holds 1
    "free",  # takes no time on either side
    "pinned",  # the user said so
    "gpu-memory",  # no room for its weights
    "energy",  # slower there, with fewer joules
    "fused",  # runs as one with an operator that is bound to the CPU
    "no-gpu",  # only the CPU was looked at
    "no-machine-code",  # ONNX Runtime's release wheel has none for this GPU
    "no-session",  # ONNX Runtime cannot run this model on this GPU
    "unknown",  # no time is known
    "folded",
    "shape-arithmetic",
    "no-cuda-kernel",
    "no-kernel-for-opset",
    "no-kernel-for-type",
    "capability",
    "no-kernel",
)


def operator_verdicts(
    question: DecisionInput, plans: Plans, sides: Sequence[Side]
) -> tuple[OperatorVerdict, ...]:
    """One verdict per operator, in the graph's order; ``sides`` are their devices in the best plan."""
    if question.gpu is None:
        only = OperatorVerdict(
            device="cpu", speedup=None, reason="no-gpu", explanation="Only the CPU was looked at."
        )
        return (only,) * len(question.graph.nodes)
    judge = _Judge(question, plans, sides)
    columns = (question.graph.nodes, question.table.costs, question.cpu_shares, question.gpu_shares)
    return tuple(judge(*row) for row in zip(*columns, strict=True))


class _Judge:
    """The verdict on one operator in the light of the plans."""

    def __init__(self, question: DecisionInput, plans: Plans, sides: Sequence[Side]) -> None:
        self._question = question
        self._sides = sides
        self._plans = plans
        self._cpu = cpu_name(question)
        self._gpu = gpu_name(question)
        self._pinned = pins_by_operator(question.graph, question.pins)
        self._results = {tensor.name for tensor in question.graph.outputs}
        # Of many layers that are alike: the words, and the ratio whose interval takes longest.
        self._work_and_times = cache(self._work_and_times_of)
        self._speedup = cache(_speedup)

    def __call__(self, node: Node, cost: Cost, cpu: Estimate | None, gpu: Estimate | None) -> OperatorVerdict:
        placed = self._question.placement.nodes[node.index] if self._question.placement else None
        if self._plans.problem is None:
            fails = self._question.placement.fails if self._question.placement else ""
            return self._verdict("cpu", None, "no-session", fails or "Its time on the GPU is not known.")
        if self._plans.problem.unit[node.index] == HOST:
            return self._verdict("either", None, "folded", "Does not run: ONNX Runtime folds it away.")
        speedup = None if cpu is None or gpu is None else self._speedup(cpu, gpu)
        middle = speedup[0] if speedup else None
        if placed is not None and placed.why == "no-kernel":
            text = f"{capital(placed.detail)}: its time is not known."
            return self._verdict("either", None, "no-kernel", text)
        if not self._plans.problem.gpu_capable[node.index]:
            return self._verdict("cpu", middle, *self._forced_to_cpu(placed, cpu))
        if cpu is None or gpu is None:
            return self._one_sided(cpu, gpu)
        if cpu.value == gpu.value == 0:
            return self._verdict(
                "either", None, "free", "Takes no time on either: it moves no data, or became part of another."
            )
        side = self._sides[node.index]
        return self._by_time(node, cost, cpu, gpu, side, speedup)

    def _by_time(
        self,
        node: Node,
        cost: Cost,
        cpu: Estimate,
        gpu: Estimate,
        side: Side,
        speedup: tuple[float, float, float] | None,
    ) -> OperatorVerdict:
        work = self._work_and_times(cost, cpu, gpu)
        if node.index in self._pinned:
            device = self._pinned[node.index].device
            middle = speedup[0] if speedup else None
            return self._verdict(device, middle, "pinned", f"Pinned to the {device.upper()}. {work}.")
        if speedup is None:
            return self._verdict("gpu" if gpu.value == 0 else "cpu", None, _limit(cpu, gpu), f"{work}.")
        middle, low, high = speedup
        # Host and card err independently: the ratio's interval is wider than either's alone.
        if low <= 1 <= high:
            tie = f"{work}; the difference is within the error"
            return self._verdict("either", middle, "within-error", f"{tie}.")
        better: Side = "gpu" if middle > 1 else "cpu"
        if better == side:
            return self._verdict(better, middle, _limit(cpu, gpu), f"{work}.")
        return self._overruled(node, better, middle, work)

    def _overruled(self, node: Node, better: Side, middle: float, work: str) -> OperatorVerdict:
        """Faster on one side, and yet on the other in the best plan."""
        copies = seconds(self._copy_seconds(node, better))
        if better == "cpu":
            return self._verdict(
                "gpu", middle, "data-on-gpu", f"{work}; the copies to the CPU would add {copies}."
            )
        if self._question.gpu is not None and not self._question.gpu.runs_release_wheel:
            why = f"{work}; ONNX Runtime's release wheel has no machine code for {self._gpu}"
            return self._verdict("cpu", middle, "no-machine-code", f"{why}.")
        if self._plans.gpu is not None and not self._plans.gpu.fits:
            return self._verdict("cpu", middle, "gpu-memory", f"{work}; {self._gpu} has no room for it.")
        if self._question.objective == "energy":
            return self._verdict("cpu", middle, "energy", f"{work}; with its copies the GPU needs more joules.")
        return self._verdict("cpu", middle, "transfer-bound", f"{work}; the copies would add {copies}.")

    def _forced_to_cpu(self, placed: NodePlacement | None, cpu: Estimate | None) -> tuple[str, str]:
        """ONNX Runtime runs it on the CPU even in a CUDA session."""
        spent = f" It takes {timed(cpu)} on the CPU." if cpu is not None else ""
        why = placed.why if placed is not None else "no-cuda-kernel"
        # The operator itself could run on the GPU, yet its unit cannot: it is fused with one that cannot.
        if why not in REASONS or why == "folded":
            return "fused", f"Runs as one with an operator that stays on the CPU.{spent}"
        if placed is not None and placed.detail:
            return why, f"{capital(placed.detail.rstrip('.'))}.{spent}"
        return why, f"{_WHY_ON_CPU[why]}{spent}"

    def _one_sided(self, cpu: Estimate | None, gpu: Estimate | None) -> OperatorVerdict:
        known, name, other = (gpu, self._gpu, self._cpu) if cpu is None else (cpu, self._cpu, self._gpu)
        if known is None:
            return self._verdict("either", None, "unknown", "Its time is not known on either.")
        text = f"{capital(name)} takes {timed(known)}; the time on {other} is not known."
        return self._verdict("either", None, "unknown", text)

    def _copy_seconds(self, node: Node, side: Side) -> float:
        """Time to bring across what it reads, and back what it writes, were it alone on that side."""
        # Constants are copied once, when the session is made.
        read = {t.name: t for t in node.present_inputs if not t.constant}.values()
        there: Direction = "to_cpu" if side == "cpu" else "to_gpu"
        back: Direction = "to_gpu" if side == "cpu" else "to_cpu"
        seconds_s = 0.0
        for tensors, direction in ((read, there), (node.present_outputs, back)):
            for tensor in tensors:
                leaves = direction == "to_cpu" and tensor.name in self._results
                where: CopyEnd = "output" if leaves else "inside"
                seconds_s += copy_time(self._question, tensor.nbytes, direction, where).value
        return seconds_s

    def _work_and_times_of(self, cost: Cost, cpu: Estimate, gpu: Estimate) -> str:
        """Return a sentence, without its stop, of the operator's work and its time on either device."""
        gpu_took, cpu_took = timed(gpu), timed(cpu)
        if _limit(cpu, gpu) == "memory-bound" and gpu.bound == "memory":
            memory = f"{self._gpu}'s memory takes {gpu_took}, "
            memory += f"{self._cpu}'s {cpu_took}" if cpu.bound == "memory" else f"{self._cpu} takes {cpu_took}"
            return f"{_bytes_in_words(cost)}: {memory}"
        work = _work_in_words(cost)
        if gpu.bound == "overhead":
            host = gpu.overhead.host_s if gpu.overhead else 0.0
            whose = f" ({seconds(host)} of it the host's)" if 2 * host > gpu.value else ""
            return f"{work}: starting it on {self._gpu} takes {gpu_took}{whose}, {self._cpu} needs {cpu_took}"
        return f"{work}: {self._gpu} takes {gpu_took}, {self._cpu} {cpu_took}"

    @staticmethod
    def _verdict(
        device: OperatorDevice, speedup: float | None, reason: str, explanation: str
    ) -> OperatorVerdict:
        return OperatorVerdict(device=device, speedup=speedup, reason=reason, explanation=explanation)


def _speedup(cpu: Estimate, gpu: Estimate) -> tuple[float, float, float] | None:
    return ratio((component("cpu", (cpu,)),), (component("gpu", (gpu,)),))


_WHY_ON_CPU = {
    "shape-arithmetic": "Computes shapes: ONNX Runtime keeps it on the CPU on purpose.",
    "no-cuda-kernel": "ONNX Runtime has no CUDA kernel for it.",
    "no-kernel-for-opset": "ONNX Runtime has a CUDA kernel for it only at another opset.",
    "no-kernel-for-type": "ONNX Runtime has a CUDA kernel for it only for other types.",
    "capability": "ONNX Runtime's CUDA kernel refuses these attributes.",
}


def _limit(cpu: Estimate, gpu: Estimate) -> str:
    """Return the deciding limit: the launch where the CPU wins against one, else that of the losing side."""
    # The GPU's own limit first; the CPU's where all that the GPU's says is that launching takes long.
    if gpu.bound == "overhead" and cpu.value < gpu.value:
        return "launch-bound"
    for estimate in (gpu, cpu):
        if estimate.bound in ("compute", "memory"):
            return f"{estimate.bound}-bound"
    return "launch-bound" if gpu.bound == "overhead" else "faster"


def _bytes_in_words(cost: Cost) -> str:
    if cost.bytes_moved is None:
        return "Moves an unknown amount of data"
    verb = "Reads" if (cost.bytes_read or 0) >= (cost.bytes_written or 0) else "Writes"
    size = cost.bytes_read if verb == "Reads" else cost.bytes_written
    if not cost.intensity:
        return f"{verb} {byte_count(size)} and computes nothing"
    return f"{verb} {byte_count(size)} and computes {digits(cost.intensity, 2)} FLOP per byte"


def _work_in_words(cost: Cost) -> str:
    if not cost.flops:
        return _bytes_in_words(cost) if cost.flops is not None else "Computes an unknown amount"
    if cost.intensity is None:
        return f"Computes {flop_count(cost.flops)}"
    return f"Computes {flop_count(cost.flops)} at {digits(cost.intensity, 2)} FLOP per byte"
