"""Predicted over measured of single operators on one thread of this CPU; prints a table, the worst first.

    analyze calibrate && python benchmarks/operators_cpu.py [--sweep] [--only WORD,WORD] [--visits 5]

Of each operator a model of its own is run in visits that take turns with all others, its outputs bound to
memory that stays, and the best visit counts, as in a calibration. What the processor spends is measured, not
the clock. Predictions execute nothing. Whatever a calibration probes in one shape has others here, and much
has no probe at all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from operator_cases import Case, cases
from operator_sweep import sweep

from analyzer import analyze

_VISIT_S = 0.05


def main() -> None:
    """Measures, predicts and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="words of names, comma-separated")
    parser.add_argument("--sweep", action="store_true", help="1,300 cases by form instead of 120 by hand")
    parser.add_argument("--visits", type=int, default=5)
    given = parser.parse_args()
    listed = sweep() if given.sweep else cases()
    chosen = [case for case in listed if any(word in case.name for word in given.only.split(","))]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.onnx" for number in range(len(chosen))]
        for case, path in zip(chosen, paths, strict=True):
            onnx.save(_model(case), path)
        calls = [_call(case, path) for case, path in zip(chosen, paths, strict=True)]
        best = np.min([[_visit(call) for call in calls] for _ in range(given.visits)], axis=0)
        plans = [analyze(path, run=False, gpu="none", threads=1).plans for path in paths]
    rows = []
    for case, seconds, found in zip(chosen, best.tolist(), plans, strict=True):
        plan = next(plan for plan in found if plan.name == "cpu")
        assert plan.low_s is not None
        assert plan.high_s is not None
        rows.append((plan.latency_s / seconds, plan.low_s <= seconds <= plan.high_s, seconds, case.name))
    print("| operator | measured | predicted over measured | inside |\n|---|---:|---:|---|")
    for ratio, inside, seconds, name in sorted(rows, key=lambda row: -abs(np.log(row[0]))):
        print(f"| {name} | {seconds * 1e6:,.0f} us | {ratio:.2f} | {'yes' if inside else 'no'} |")
    off, held = np.abs(np.log([row[0] for row in rows])), np.mean([row[1] for row in rows])
    middle = np.expm1(np.median(off))
    within = " and ".join(f"{np.mean(off < np.log(times)):.0%} within {times}x" for times in (2, 4))
    either = np.mean([abs(np.log(row[0])) < np.log(2) or row[1] for row in rows])
    inside = f"{held:.0%} inside, {either:.1%} within 2x or inside"
    print(f"\n{len(rows)} operators: {middle:.0%} off at the median, {within}, {inside}")


def _model(case: Case) -> onnx.ModelProto:
    names = [f"i{number}" for number in range(len(case.fed) + len(case.stored))]
    fed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, case.fed, strict=False)
    ]
    results = [f"o{number}" for number in range(case.outputs)]
    known = dict(zip(names[len(case.fed) :], case.stored, strict=True))
    given = [name if known.get(name, 0) is not None else "" for name in names]
    node = helper.make_node(case.op, given, results, domain=case.domain, **case.attributes)
    stored = [numpy_helper.from_array(array, name) for name, array in known.items() if array is not None]
    graph = helper.make_graph(
        [node], "one", fed, [helper.make_empty_tensor_value_info(name) for name in results], stored
    )
    opsets = [helper.make_opsetid("", case.opset)]
    opsets += [helper.make_opsetid(case.domain, 1)] if case.domain else []
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _call(case: Case, path: Path) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {f"i{number}": array for number, array in enumerate(case.fed)}
    bound = session.io_binding()
    for name, array in feeds.items():
        bound.bind_cpu_input(name, array)
    for number, array in enumerate(session.run(None, feeds)):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))
        bound.bind_ortvalue_output(f"o{number}", value)
    return lambda: session.run_with_iobinding(bound)


def _visit(call: Callable[[], object]) -> float:
    """Seconds of processor time of a call within one visit."""
    call()
    count, begin, start = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < _VISIT_S or count < 2:
        call()
        count += 1
    return (time.process_time() - start) / count


if __name__ == "__main__":
    main()
