"""Predicted networks, convolutions and products beside those of a recorded card, operator by operator.

    python benchmarks/recorded_networks.py [--record tests/data/gpu/h200-networks.json.gz] [--operators]

Reads the records of ``gpu_networks.py`` and of the families ``network``, ``convolution``, ``pool``,
``product with bias`` and ``unaligned product`` of ``gpu_families.py``, and predicts the same graphs by the
catalogue alone, the host given as a Xeon Platinum 8481C. No constant is fitted to these times; of
convolutions, biases, unaligned products and pools, which kernels there are was read from an H100's, and their
rates rounded (``GpuConstants``).
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpu_networks
from gpu_family_cases import FAMILIES
from recorded_cards import HOST, RECORDS, Rows, card_of, compared, read

from analyzer.costs import count
from analyzer.devices import catalogue
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.ort.simplify import simplify
from analyzer.prediction import workload
from analyzer.prediction.predict import model_times, stacked

if TYPE_CHECKING:
    from analyzer.devices.device import Device
    from analyzer.graph import Graph
    from analyzer.ort.execution import Group
    from analyzer.prediction import Workload

# Of ``gpu_families.py``, what is predicted from its graph.
_FAMILIES = ("convolution", "product with bias", "unaligned product", "pool")
_PRECISIONS = {"tf32": "tf32", "fp16": "fp16", "float32": "tf32", "float16": "fp16"}


@dataclass(frozen=True)
class Predicted:
    """A graph on a card: what a session executes, and its numbers."""

    groups: tuple[Group, ...]
    work: Workload
    card: Device
    precision: str

    @staticmethod
    def of(graph: Graph, card: Device, kind: str) -> Predicted:
        simplified = simplify(graph)
        groups = predicted_groups(graph, "cuda", place(graph, simplified), simplified=simplified)
        return Predicted(groups, workload(graph, count(graph), groups), card, _PRECISIONS[kind])

    def times(self, *, replayed: bool) -> Any:
        """Of a session, or of one replay of a CUDA graph."""
        stack = stacked([(self.work, [1] * len(self.groups))])
        host = None if replayed else catalogue.device(HOST)
        return model_times(stack, self.card, precision=self.precision, host=host, replayed=replayed)


def networks(rows: Rows, card: Device, *, by_operator: bool) -> None:
    """A row for each network, and one for each type of operator of all."""
    ways = " | ".join(f"{way}, ms | predicted [90 %] | ratio" for way in ("session", "graph"))
    print(f"| network | type | batch | {ways} |")
    print("|---|---|---|---|---|---|---|---|---|")
    found: dict[str, list[tuple[float, bool]]] = {"session": [], "graph": []}
    operators: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    loaded: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: (row["model"], row["type"], row["batch"])):
        if row["model"] not in loaded:
            loaded[row["model"]] = gpu_networks.load(row["model"])
        graph = gpu_networks.graph_of(loaded[row["model"]], row["type"], row["batch"])
        predicted = Predicted.of(graph, card, row["type"])
        times = {"session": predicted.times(replayed=False), "graph": predicted.times(replayed=True)}
        cells = []
        for way, name in (("session", "resident"), ("graph", "graph")):
            taken = row["ways"].get(name, {}).get("median_s") if "ways" in row else row.get(f"{way}_s")
            if taken is None:
                cells += ["-"] * 3
                continue
            estimate = times[way].of(0)
            found[way].append((estimate.value / taken, estimate.low <= taken <= estimate.high))
            cells += compared(taken, estimate)
        print(f"| {row['model']} | {row['type']} | {row['batch']} | " + " | ".join(cells) + " |")
        if "nodes" in row:
            _add_operators(operators, row, predicted.groups, times["graph"].groups.value)
    for way, pairs in found.items():
        _summary(way, pairs)
    if by_operator:
        print("\n| operator | type | measured, ms | predicted | ratio |")
        print("|---|---|---|---|---|")
        for (name, kind), (measured, guessed) in sorted(operators.items(), key=lambda item: -item[1][0]):
            print(
                f"| {name} | {kind} | {measured * 1e3:.2f} | {guessed * 1e3:.2f} | {guessed / measured:.2f} |"
            )


def _add_operators(
    operators: dict[tuple[str, str], list[float]],
    row: dict[str, Any],
    groups: Iterable[Group],
    seconds: Iterable[float],
) -> None:
    for node in row["nodes"]:
        if node["device_s"]:
            operators[node["op_type"], row["type"]][0] += node["device_s"]
    for group, each in zip(groups, seconds, strict=True):
        if (group.op_type, row["type"]) in operators:
            operators[group.op_type, row["type"]][1] += float(each)


def single(families: dict[str, Rows], card: Device) -> None:
    """A row for each family and type."""
    import onnx

    from analyzer.loading.onnx_graph.build import to_graph

    if not families:
        return
    print("\n| family | type | n | median error | ratio | within 2x | inside |")
    print("|---|---|---|---|---|---|---|")
    for family, rows in families.items():
        cases = {case.name: case for case in FAMILIES[family]()}
        pairs: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        for row in rows:
            graph = to_graph(onnx.load_from_string(cases[row["case"]].model()), bindings={})
            times = Predicted.of(graph, card, row["dtype"]).times(replayed=True)
            seconds, taken = float(times.groups.value.sum()), row["kernel_s"]
            # One replay has a fixed cost of its own, which the sum of kernels has not; of several kernels it
            # is a small part, and the gaps between them count.
            if row["copies"] > 1:
                seconds, taken = float(times.value[0]), row["graph_s"]
            share = seconds / float(times.value[0])
            pairs[row["dtype"]].append(
                (seconds / taken, times.low[0] * share <= taken <= times.high[0] * share)
            )
        for dtype, each in pairs.items():
            print(f"| {family} | {dtype} | {len(each)} | {_figures(each)} |")


def _figures(pairs: Iterable[tuple[float, bool]]) -> str:
    pairs = list(pairs)
    errors = [abs(math.log(ratio)) for ratio, _ in pairs]
    return (
        f"{math.expm1(statistics.median(errors)):.0%} | {statistics.median(ratio for ratio, _ in pairs):.2f} "
        f"| {sum(error < math.log(2) for error in errors)} | {sum(inside for _, inside in pairs)}"
    )


def _summary(way: str, pairs: list[tuple[float, bool]]) -> None:
    print(f"\n{way}: {len(pairs)}; median error, ratio, within 2x, inside: {_figures(pairs)}")


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, action="append")
    parser.add_argument("--capability", default="9.0", help="compute capability of the cards")
    parser.add_argument("--operators", action="store_true", help="by type of operator too")
    asked = parser.parse_args()
    for path in asked.record or sorted(RECORDS.glob("*.gz")):
        record = read(path)
        rows = record.get("rows", {})
        if not {"network", *_FAMILIES} & set(rows):
            continue
        card = card_of(record, asked.capability)
        print(f"\n{card.name}, {path.name}\n")
        if "network" in rows:
            networks(rows["network"], card, by_operator=asked.operators)
        single({name: rows[name] for name in _FAMILIES if name in rows}, card)


if __name__ == "__main__":
    main()
