"""Applied plans of every sample against the real CUDA provider; prints a table and every difference.

    python benchmarks/apply_matrix.py [--samples NAME,...] [--opsets N,...] [--types fp32,fp16] [--pins N]

Each sample is exported at each opset and type, and applied as the CUDA session, as the best split and with
random pins. Weights are zeros in a file without content: what is compared is placement. Ends with status 1 if a
node or a copy is elsewhere than `apply.json` would say.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "judge"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import court
import judge_matrix
import onnx
import standins

from analyzer.decision.decision_input import DecisionInput, Pin
from analyzer.decision.plans import plan_all
from analyzer.devices import catalogue
from analyzer.errors import AnalyzerError, UsageError
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.measurement.applied_child import level_one
from analyzer.ort.execution import SETTINGS, annotate
from analyzer.ort.session_nodes import LevelOne
from analyzer.pipeline.apply.request import ToldSession, hybrid_session
from analyzer.pipeline.options import make_options
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One sample at one opset and type, ready to be applied."""

    title: str
    model: onnx.ModelProto
    asked: DecisionInput
    made: LevelOne


def main() -> int:
    """Judges what the options select."""
    arguments = _arguments()
    reason = standins.missing()
    if reason:
        print(f"Nothing judged: {reason}.")
        return 0
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    sessions = nodes = copies = wrong = 0
    print("| sample | sessions | pins refused | annotated | nodes | copies | elsewhere | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder, court.Judge(standins.build(Path(folder))) as judge:
        for case in _cases(arguments, Path(folder)):
            start, refused, annotated = time.perf_counter(), 0, 0
            counts = [0, 0, 0]
            problems: list[str] = []
            for told in _sessions(case, arguments.pins):
                if told is None:
                    refused += 1
                    continue
                annotated += len(told.annotated)
                found = _judged(judge, Path(folder), case, told)
                counts = [counts[0] + 1, counts[1] + found[0], counts[2] + found[1]]
                problems += found[2]
            print(
                f"| {case.title} | {counts[0]} | {refused} | {annotated} | {counts[1]} | {counts[2]} "
                f"| {len(problems)} | {time.perf_counter() - start:.0f} |",
                flush=True,
            )
            for problem in problems[:5]:
                print(f"    {problem}")
            sessions, nodes, copies = sessions + counts[0], nodes + counts[1], copies + counts[2]
            wrong += len(problems)
    print(f"\n{sessions} sessions, {nodes} nodes, {copies} copies: {wrong} elsewhere than planned")
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--samples",
        default=",".join(sorted(path.stem for path in (judge_matrix.ROOT / "samples").glob("*.py"))),
    )
    parser.add_argument("--opsets", default="18,19,20,21,22,23")
    parser.add_argument("--types", default="fp32,fp16")
    parser.add_argument("--pins", type=int, default=40)
    return parser.parse_args()


def _cases(arguments: argparse.Namespace, folder: Path) -> Iterator[Case]:
    gpu = catalogue.device("l4")
    for name in arguments.samples.split(","):
        if not judge_matrix._has_model(name):
            continue
        for opset in map(int, arguments.opsets.split(",")):
            for kind in arguments.types.split(","):
                title = f"{name} {opset} {kind}"
                try:
                    loaded = judge_matrix._load(name, opset, kind, folder)
                except AnalyzerError as error:
                    print(f"    {title}: not exported ({error.message})")
                    continue
                if loaded is None:
                    continue
                model, graph = _bound(loaded)
                predictor = Predictor(make_options(run=False, gpu="l4"), catalogue.device("epyc-9654"))
                asked = predictor.decision_input(prepare(graph), gpu, None, None)
                made = LevelOne.of(graph, level_one(judge_matrix._with_weights(model, folder)))
                yield Case(title=title, model=model, asked=asked, made=made)


def _bound(loaded: Loaded) -> tuple[onnx.ModelProto, Graph]:
    model = onnx.ModelProto()
    model.CopyFrom(loaded.proto)
    judge_matrix._bind(model, loaded)
    return model, loaded.graph(loaded.static_batch or judge_matrix.STATIC if loaded.symbol else None)


def _sessions(case: Case, pins: int) -> Iterator[ToldSession | None]:
    """The CUDA session, the best split, and splits with random pins; None where a pin cannot be kept."""
    gpu = plan_all(case.asked).gpu
    if gpu is None or case.asked.placement is None:
        return
    yield ToldSession(plan=gpu, placement=case.asked.placement)
    yield hybrid_session(case.asked, case.made)
    # The same pins on every machine and at every run.
    generator = random.Random(20)
    names = [node.name for node in case.asked.graph.nodes]
    for _ in range(pins):
        chosen = generator.sample(names, min(len(names), generator.choice((1, 1, 2, 5, 20))))
        device = generator.choice(("cpu", "cpu", "gpu"))
        wishes = tuple(Pin(pattern=name, device="gpu" if device == "gpu" else "cpu") for name in chosen)
        try:
            yield hybrid_session(replace(case.asked, pins=wishes), case.made)
        except UsageError:
            yield None


def _judged(judge: court.Judge, folder: Path, case: Case, told: ToldSession) -> tuple[int, int, list[str]]:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    annotate(model, {case.asked.graph.nodes[index].name for index in told.annotated})
    path = judge_matrix._with_weights(model, folder)
    ruling = judge.rule(path, config=SETTINGS if told.annotated else {})
    if ruling.error:
        return 0, 0, [f"no session: {ruling.error[:200]}"]
    planned, real = case.made.nodes(told.placement), ruling.assigned
    problems = [
        f"{name}: {planned.get(name, 'nothing')} planned, {real.get(name, 'nothing')} recorded"
        for name in sorted(planned.keys() | real.keys())
        if planned.get(name) != real.get(name)
    ]
    if len(told.placement.copies) != len(ruling.copies):
        problems.append(f"{len(told.placement.copies)} copies planned, {len(ruling.copies)} made")
    return len(real), len(ruling.copies), problems


if __name__ == "__main__":
    sys.exit(main())
