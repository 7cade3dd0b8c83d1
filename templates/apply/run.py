"""Runs model.onnx as planned; needs onnxruntime and numpy alone. --verify compares it with the plan."""

import argparse
import json
from pathlib import Path
from timeit import timeit

import numpy as np
import onnxruntime as ort

HOME, CUDA, HERE = Path(__file__).resolve().parent, "CUDAExecutionProvider", ort.get_available_providers()
SETTINGS, PLAN = (json.loads((HOME / name).read_text("utf-8")) for name in ("session.json", "apply.json"))


def session_on(providers, entries):
    options = ort.SessionOptions()
    options.intra_op_num_threads = SETTINGS["intra_op_num_threads"]
    for name, value in {**entries, "session.record_ep_graph_assignment_info": "1"}.items():
        options.add_session_config_entry(name, value)
    return ort.InferenceSession(str(HOME / "model.onnx"), options, providers=providers)


def placed(name, data, at):  # of a type that NumPy lacks these are bits, and the plan has ONNX's number of it
    value = ort.OrtValue.ortvalue_from_shape_and_type(data.shape, PLAN["bits"].get(name, data.dtype), at, 0)
    value.update_inplace(np.asarray(data, order="C"))
    return value


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--verify", action="store_true", help="exit status 1 where nodes or numbers are otherwise")
parser.add_argument("--runs", type=int, default=10)
parser.add_argument("--inputs", default=HOME / "inputs.npz", help="arrays by input name, from numpy.savez")
asked, pairs = parser.parse_args(), zip(SETTINGS["providers"], SETTINGS["provider_options"], strict=True)
session = session_on([pair for pair in pairs if pair[0] in HERE], SETTINGS["session_config"])
device, gaps, first = "cuda" if CUDA in session.get_providers() else "cpu", PLAN["tolerances"], []
given, binding, names = np.load(asked.inputs), session.io_binding(), [o.name for o in session.get_outputs()]
fed = {at: {i.name: placed(i.name, given[i.name], at) for i in session.get_inputs()} for at in {device, "cpu"}}
for (name, value), at in zip(fed[device].items(), session.get_input_memory_infos(), strict=True):
    binding.bind_ortvalue_input(name, fed["cpu"][name] if at.name == "Cpu" else value)
ends = [*zip(names, session.get_output_memory_infos(), strict=True)]
for run in range(max(1, asked.runs)):
    for name, at in () if run and "enable_cuda_graph" in SETTINGS["provider_options"][0] else ends:
        binding.bind_output(name, "cpu" if at.name == "Cpu" else device)  # a graph writes where it did at first
    took, outputs = timeit(lambda: session.run_with_iobinding(binding), number=1), binding.get_outputs()
    first = first or [np.array(outputs[names.index(name)].numpy()) for name in gaps]
    for past, present in PLAN["state"].items():  # the next run reads it where it lies
        binding.bind_ortvalue_input(past, outputs[names.index(present)])
print(f"{', '.join(session.get_providers())}: the last of {asked.runs} runs took {took * 1e3:.3f} ms")
if asked.verify:
    found = {n.name: p.ep_name for p in session.get_provider_graph_assignment_info() for n in p.get_nodes()}
    blind = device == "cpu" and CUDA in SETTINGS["providers"] and "not verified, CUDA does not load here"
    wrong = [n for n, place in PLAN["nodes"].items() if not (blind or found.get(n, "").startswith(place))]
    print("placement:", blind or f"{len(wrong)} of {len(PLAN['nodes'])} nodes are not as planned: {wrong}")
    both = [map(np.float64, s) for s in (first, gaps and session_on(HERE[-1:], {}).run([*gaps], fed["cpu"]))]
    for (name, (share, least)), got, right in zip(gaps.items(), *both, strict=True):
        limit = least + share * np.max(np.abs(right), where=np.isfinite(right), initial=0)
        wrong += [] if np.allclose(got, right, rtol=0, atol=limit, equal_nan=True) else [name]
        print(f"numbers: {name} is off by {np.max(np.abs(got - right), initial=0):.2g}, {limit:.2g} is allowed")
    raise SystemExit(bool(wrong))
