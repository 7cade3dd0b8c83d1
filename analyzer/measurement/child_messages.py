"""Messages of a measuring child: progress at once, results as soon as they are there.

A crash loses only what was still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.measurement.machine_load import Load
from analyzer.measurement.noise import APART_RATIO
from analyzer.measurement.request import Latency, NodeTime, to_message
from analyzer.process import Channel

PROGRESS, RESULTS = "progress", "results"
OPTIMIZED = "slim.onnx"
OPTIMIZED_FULL = "optimized.onnx"
# Initializers up to this size keep their values: shapes, axes and scalars, which shape inference needs.
_SMALL_WEIGHT_BYTES = 1024
# Turns of runs on an undisturbed machine differ by less than this.
_SPEED_CHANGED = 1.25


def work_as_child(
    channel: Channel, work: Callable[[Mapping[str, Any], Path, Reporter], None], out_of_memory: str
) -> None:
    """Do the task that the parent sends; ``out_of_memory`` is the hint where memory ends."""
    folder, task = channel.receive()
    reporter = Reporter(channel, Path(folder))
    try:
        work(task, Path(folder), reporter)
    except AnalyzerError as error:
        reporter.error(error.message, error.hint, type(error).__name__)
    except MemoryError:
        reporter.error("out of memory", out_of_memory, "MeasurementError")


class Reporter:
    """Collects results and sends each as soon as it is there; one per child process."""

    def __init__(self, channel: Channel, folder: Path) -> None:
        self._channel = channel
        self._folder = folder
        self._messages: list[str] = []
        self._environment: dict[str, Any] = {}
        self._ways: dict[str, Any] = {}
        self._loads: dict[str, Load] = {}
        self._busy = ""

    def progress(self, stage: str, fraction: float) -> None:
        """Report the stage and how much is done, 0 to 1."""
        self._channel.send([PROGRESS, [stage, round(fraction, 3)]])

    def update(self, **values: Any) -> None:
        """Report results by field of ``Measurement``."""
        self._channel.send([RESULTS, values])

    def message(self, text: str) -> None:
        """Send a sentence for the user, once."""
        if text not in self._messages:
            self._messages.append(text)
            self._send_messages()

    def environment(self, **values: Any) -> None:
        """Send the circumstances of the measurement."""
        self._environment |= values
        self.update(environment=self._environment)

    def latency(self, latency: Latency, load: Load, threads: int, way: str = "copies") -> None:
        """Send the latency and the machine's other load; replaces an earlier one of the same way.

        Of several ways that with copies is the latency; where a run has none, the first.
        """
        self._ways[way] = to_message(latency)
        self._loads[way] = load
        heaviest = max(self._loads.values(), key=lambda one: one.others_cores)
        self._busy = heaviest.sentence(threads) if heaviest.is_busy() else ""
        first = next(iter(self._ways.values()))
        self.update(latency=self._ways.get("copies", first), ways=self._ways, busy=heaviest.is_busy())
        self._send_messages()
        self.environment(
            threads=threads,
            available_cores=heaviest.available_cores,
            others_cores=round(heaviest.others_cores, 3),
            stolen_cores=round(heaviest.stolen_cores, 3),
        )

    def turns(self, medians: Sequence[float]) -> None:
        """Send the turns' medians, with a word where the machine's speed changed between them."""
        ratio = max(medians) / min(medians)
        self.environment(turns=len(medians), turns_apart=round(ratio, 3))
        if ratio > _SPEED_CHANGED:
            self.message(
                f"the machine's speed changed while measuring: {len(medians)} turns of runs differ by a "
                f"factor of {ratio:.2f}; the quieter half of them counts, the interval holds all"
            )

    def cores_apart(self, ratios: Sequence[float]) -> None:
        """Send how many times worse than at best threads shared work, by turn; a note where most were apart."""
        apart = [ratio for ratio in ratios if ratio > APART_RATIO]
        self.environment(cores_apart=round(max(ratios), 3), turns_with_cores_apart=len(apart))
        # A few turns less change nothing; another process that takes a core shows in the same readings, and
        # has its own sentence.
        if 2 * len(apart) <= len(ratios) or self._busy:
            return
        how = (
            f"threads shared their work up to {max(apart):.1f} times worse than at best, as where a hypervisor "
            "moves them to cores without a common cache"
        )
        if len(apart) < len(ratios):
            self.message(f"in {len(apart)} of {len(ratios)} turns of runs {how}; the other turns count")
        else:
            self.message(
                f"all the time {how}; the interval covers what the model may take on cores that have one"
            )

    def nodes(self, nodes: Sequence[NodeTime]) -> None:
        """Send the nodes' times."""
        self.update(nodes=to_message(nodes))

    def optimized(self, path: Path) -> None:
        """Send the graph that runs, without its weights."""
        import onnx

        # The parent reads node types and names: with weights the file may be gigabytes.
        model = onnx.load(path, load_external_data=False)
        drop_weights(model.graph)
        onnx.save(model, self._folder / OPTIMIZED)
        self.update(optimized=True)

    def error(self, message: str, hint: str | None, kind: str) -> None:
        """Return why it ended early."""
        self.update(error={"message": message, "hint": hint, "kind": kind})

    def _send_messages(self) -> None:
        self.update(messages=[*([self._busy] if self._busy else []), *self._messages])


def drop_weights(graph: Any) -> None:
    """Take the elements of large initializers away, shapes and types stay; subgraphs as well."""
    from onnx import StringStringEntryProto, TensorProto

    for tensor in graph.initializer:
        if tensor.data_location == 1 or tensor.ByteSize() > _SMALL_WEIGHT_BYTES:
            left = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            left.data_location = TensorProto.EXTERNAL
            left.external_data.append(StringStringEntryProto(key="location", value="weights-left-out"))
            tensor.CopyFrom(left)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                drop_weights(attribute.g)
            for inner in attribute.graphs:
                drop_weights(inner)
