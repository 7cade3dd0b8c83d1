"""What a rented machine with a GPU takes is of its own processor: one figure, whoever asks and from where."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.devices import catalogue
from analyzer.prediction.gpu.launch import HOST_WIDTH, NODE_S, UNKNOWN_HOST_WIDTH, launch_of
from analyzer.prediction.reference_core import single_core_speed
from analyzer.record.analysis import Analysis
from analyzer.record.outcome import CostRow

SAMPLES = Path(__file__).parents[2] / "samples"
# The processor of the T4's instances at AWS, and one of a faster core.
CPUS = ("xeon-platinum-8259cl", "epyc-9654")


def chain(length: int = 200) -> onnx.ModelProto:
    """Many small kernels, which a GPU computes in no time: launching them is what takes it."""
    names = ["x", *(f"t{at}" for at in range(length - 1)), "y"]
    kinds = ("Sin", "Cos")
    nodes = [helper.make_node(kinds[at % 2], [names[at]], [names[at + 1]]) for at in range(length)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4096]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def priced(analysis: Analysis) -> dict[str, CostRow]:
    """The instances with a GPU, with their dollars."""
    return {f"{row.provider} {row.instance}": row for row in analysis.instances if row.gpu}


def figures(analysis: Analysis) -> dict[str, tuple[Any, ...]]:
    return {
        name: (row.usd_per_million, row.latency_s, row.low_s, row.high_s, row.plan, row.host)
        for name, row in priced(analysis).items()
    }


def asked(model: Any, **options: Any) -> Analysis:
    return analyze(model, gpu="t4", run=False, **options)


@pytest.fixture(name="page", scope="module")
def of_this_machine() -> Analysis:
    return asked(chain(), batch=8)


@pytest.mark.parametrize("cpu", CPUS)
def test_an_instance_has_one_price_whatever_cpu_was_asked_about(page: Analysis, cpu: str) -> None:
    assert figures(asked(chain(), batch=8, cpu=cpu)) == figures(page)
    assert len(figures(page)) > 10


def test_a_check_has_the_price_of_the_page(page: Analysis) -> None:
    """`analyze check` asks this machine nothing: it decides for a CPU of the catalogue."""
    assert figures(asked(chain(), batch=8, check=True)) == figures(page)


@pytest.mark.parametrize(("name", "batch"), [("lstm", 64), ("recommender", 8)])
def test_samples_have_one_price_on_the_page_by_a_check_and_beside_another_cpu(name: str, batch: int) -> None:
    """Steps that wait for each other, and operators that a split may divide."""
    path = SAMPLES / f"{name}.py"
    there, check = asked(path, batch=batch, cpu="xeon-e5-2686-v4"), asked(path, batch=batch, check=True)
    assert figures(there)
    assert figures(there) == figures(check)


def test_a_slower_core_launches_later(page: Analysis) -> None:
    """200 kernels of one kind are launched in as many times ``NODE_S`` over the speed of the core, at least."""
    rows = priced(page)
    machines = {f"{one.provider} {one.name}": one for one in catalogue.instances()}
    seen = set()
    for name, row in rows.items():
        machine = machines[name]
        if row.gpu != "t4" or row.plan != "gpu" or not machine.cpu:
            continue
        speed = single_core_speed(catalogue.device(machine.cpu))
        assert row.latency_s is not None
        assert row.latency_s > 200 * NODE_S / speed
        seen.add(machine.cpu)
    assert {"xeon-platinum-8259cl", "xeon-e5-2686-v4"} <= seen
    # The Broadwell core of GCP's is 0.70 times as fast as AWS's Cascade Lake.
    slow, fast = (rows[name].latency_s for name in ("GCP n1-standard-4+1xT4", "AWS g4dn.xlarge"))
    assert slow is not None
    assert fast is not None
    ratio = single_core_speed(catalogue.device("xeon-platinum-8259cl")) / single_core_speed(
        catalogue.device("xeon-e5-2686-v4")
    )
    assert 1.0 < slow / fast <= ratio


def test_an_unknown_cpu_is_told_and_its_interval_is_wider(page: Analysis) -> None:
    rows = priced(page)
    known, nearest, unknown = (
        rows[name] for name in ("AWS g4dn.xlarge", "GCP n1-standard-4+1xT4", "Azure Standard_NC4as_T4_v3")
    )
    assert [row.host_basis for row in (known, nearest, unknown)] == ["known", "nearest", "assumed"]
    assert known.host == "Intel Xeon Platinum 8259CL, 2 cores"
    widths = [math.log((row.high_s or 0.0) / (row.low_s or math.inf)) for row in (known, nearest, unknown)]
    assert widths[0] < min(widths[1:])


def test_what_launches_is_as_sure_as_its_processor_is_known() -> None:
    gpu, machines = catalogue.device("t4"), {one.name: one for one in catalogue.instances()}
    own, near = (catalogue.instance_cpu(machines[name]) for name in ("g4dn.xlarge", "n1-standard-4+1xT4"))
    assert launch_of(gpu, own).width == HOST_WIDTH
    assert launch_of(gpu, near).width == launch_of(gpu, None).width == UNKNOWN_HOST_WIDTH


def test_copies_beside_each_other_share_the_cores(page: Analysis) -> None:
    """48 hardware threads are 24 cores, and four GPUs run four copies of the model: each has six."""
    assert priced(page)["AWS g4dn.12xlarge"].host == "Intel Xeon Platinum 8259CL, 6 cores"


def test_the_first_screen_has_the_dollars_of_the_list(page: Analysis) -> None:
    """Those of a plan, of the sentence below the answer and of the list of instances are one."""
    rows, plan = priced(page), page.plan("gpu")
    assert plan is not None
    of_plan = next(row for row in rows.values() if row.instance == plan.instance)
    assert of_plan.plan == "gpu"
    assert (plan.usd_per_million, plan.instance_latency_s) == (of_plan.usd_per_million, of_plan.latency_s)
