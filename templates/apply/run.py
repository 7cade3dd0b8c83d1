"""Runs model.onnx as planned; needs onnxruntime and numpy alone. --verify compares it with the plan."""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

HOME, CUDA, HERE = Path(__file__).resolve().parent, "CUDAExecutionProvider", ort.get_available_providers()
SETTINGS, PLAN = (json.loads((HOME / name).read_text("utf-8")) for name in ("session.json", "apply.json"))


def session_on(providers, entries):
    options = ort.SessionOptions()
    for name, value in {**entries, "session.record_ep_graph_assignment_info": "1"}.items():
        options.add_session_config_entry(name, value)
    return ort.InferenceSession(str(HOME / "model.onnx"), options, providers=providers)


def placed(item, array, device):  # 16: bfloat16 by ONNX's number, whose bits NumPy keeps as uint16
    kind = 16 if item.type == "tensor(bfloat16)" else array.dtype
    value = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, kind, device, 0)
    value.update_inplace(np.asarray(array, order="C"))
    return value


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--verify", action="store_true", help="compare placement and numbers with the plan")
parser.add_argument("--runs", type=int, default=10)
parser.add_argument("--inputs", default=HOME / "inputs.npz", help="arrays by input name, from numpy.savez")
asked, pairs = parser.parse_args(), zip(SETTINGS["providers"], SETTINGS["provider_options"], strict=True)
session = session_on([pair for pair in pairs if pair[0] in HERE], SETTINGS["session_config"])
device = "cuda" if CUDA in session.get_providers() else "cpu"
given, binding, names = np.load(asked.inputs), session.io_binding(), [o.name for o in session.get_outputs()]
for item in session.get_inputs():
    binding.bind_ortvalue_input(item.name, placed(item, given[item.name], device))
for _ in range(max(1, asked.runs)):
    for name in names:
        binding.bind_output(name, device)
    start = time.perf_counter()
    session.run_with_iobinding(binding)
    took, outputs = time.perf_counter() - start, binding.get_outputs()
    for past, present in PLAN["state"].items():  # the next run reads it where it lies
        binding.bind_ortvalue_input(past, outputs[names.index(present)])
print(f"{', '.join(session.get_providers())}: the last of {asked.runs} runs took {took * 1e3:.3f} ms")
if asked.verify:
    found = {n.name: p.ep_name for p in session.get_provider_graph_assignment_info() for n in p.get_nodes()}
    wrong = [n for n, place in PLAN["nodes"].items() if not found.get(n, "").startswith(place)]
    told = f"{len(wrong)} of {len(PLAN['nodes'])} nodes are not where the plan has them: {wrong}"
    blind = device == "cpu" and CUDA in SETTINGS["providers"]
    print("placement:", "not verified, CUDA's provider does not load here" if blind else told)
    feeds = {item.name: placed(item, given[item.name], "cpu") for item in session.get_inputs()}
    names = [o.name for o in session.get_outputs() if o.type != "tensor(bfloat16)"]  # NumPy cannot
    ours, plain = (names and each.run(names, feeds) for each in (session, session_on(HERE[-1:], {})))
    for name, got, right in zip(names, ours, plain, strict=True):
        gap = np.max(np.abs(np.subtract(got, right, dtype=np.float64)), initial=0)
        print(f"numbers: {name} is off by {gap:.2g}, its largest is {np.max(np.abs(right), initial=0):.2g}")
