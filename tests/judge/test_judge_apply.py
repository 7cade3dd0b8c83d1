"""Applied plans against the real CUDA provider: every node and copy where the folder says."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import onnx
import pytest

from analyzer.api import apply_plan
from analyzer.errors import UsageError
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.measurement import applied_child
from analyzer.ort.placement import place

if TYPE_CHECKING:
    from court import Judge, Ruling


@pytest.fixture(autouse=True)
def _sessions_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sessions of the CPU's provider tell is no subject here; a child for each imports for a second."""

    def done(_module: str, asked: Any, folder: Path, **_: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        applied_child._work(asked, folder, Mock(update=results.update))
        return results

    monkeypatch.setattr(applied_child, "run_task", done)


def differences(folder: Path, ruling: Ruling) -> list[str]:
    """Nodes and copies of the session that are not as ``apply.json`` has them."""
    said = json.loads((folder / "apply.json").read_text())
    real = {name: provider.upper() for name, provider in ruling.assigned.items()}
    names = sorted(said["nodes"].keys() | real.keys())
    wrong = [name for name in names if said["nodes"].get(name) != real.get(name)]
    return [*wrong, *([f"{said['copies']} copies"] if said["copies"] != len(ruling.copies) else [])]


def applied(judge: Judge, model: onnx.ModelProto, folder: Path, **options: Any) -> Ruling:
    """Applies a plan and makes the session that the folder describes."""
    apply_plan(model, output=folder, gpu="l4", run=False, **options)
    session = json.loads((folder / "session.json").read_text())
    on_gpu = "CUDAExecutionProvider" in session["providers"]
    return judge.rule(
        folder / "model.onnx", session="cuda" if on_gpu else "cpu", config=session["session_config"]
    )


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
@pytest.mark.parametrize("name", ["residual", "mobile", "encoder", "decoder", "recurrent", "unet"])
def test_random_pins_are_kept_by_the_real_provider_with_as_many_copies_as_said(
    judge: Judge, name: str, half: bool, tmp_path: Path
) -> None:
    small_models = pytest.importorskip("small_models")
    if half and name in ("encoder", "decoder", "recurrent"):
        pytest.skip("their inputs are whole numbers; the benchmark has such models in 16 bits")
    model = small_models.exported(name, 23, half=half)
    graph = to_graph(model)
    placed = zip(graph.nodes, place(graph).nodes, strict=True)
    kinds = sorted({node.op_type for node, at in placed if at.provider == "cuda" and at.why == "cuda-kernel"})
    generator = random.Random(name)
    held, copied = 0, False
    for number in range(8):
        # Small models are the CPU's: what is not pinned there is pinned to the GPU.
        chosen = generator.sample(kinds, generator.choice((1, 1, 2)))
        pins = [*(f"{kind}=gpu" for kind in kinds), *(f"{kind}=cpu" for kind in chosen)]
        folder = tmp_path / str(number)
        # Two may run as one fused operator, or have no kernel in 16 bits: such pins are refused.
        with suppress(UsageError):
            assert differences(folder, applied(judge, model, folder, pin=pins)) == []
            said = json.loads((folder / "apply.json").read_text())
            held, copied = held + 1, copied or bool(said["copies"] and said["annotated"])
        if held >= 3 and (copied or half):
            break
    # Of what has no kernel in 16 bits on the CPU little can be held there.
    assert copied or half


@pytest.mark.parametrize("plan", ["cpu", "gpu", "hybrid"])
@pytest.mark.parametrize("name", ["residual", "unet"])
def test_each_plan_of_a_model_with_operators_that_cuda_lacks_is_as_said(
    judge: Judge, name: str, plan: str, tmp_path: Path
) -> None:
    small_models = pytest.importorskip("small_models")
    model = small_models.exported(name, 23)
    ruling = applied(judge, model, tmp_path / "out", plan=plan)
    assert differences(tmp_path / "out", ruling) == []
