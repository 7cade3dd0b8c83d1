"""The registry that the analyzer carries is the one of the release that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.ort.releases_data import REGISTRY_VERSION


def test_the_packaged_registry_is_what_the_installed_release_says(tmp_path: Path) -> None:
    standins = pytest.importorskip("standins")
    if standins.missing():
        pytest.skip(standins.missing())
    import onnxruntime
    import rebuild_registry

    if onnxruntime.__version__ != REGISTRY_VERSION:
        pytest.skip(
            f"onnxruntime {onnxruntime.__version__} is installed, the registry is of {REGISTRY_VERSION}"
        )
    for name in ("listing", "judge"):
        (tmp_path / name).mkdir()
    host = rebuild_registry.host_memory(tmp_path / "judge")
    opset = rebuild_registry.newest_opset(tmp_path / "judge")
    fresh = rebuild_registry.compact(rebuild_registry.read(tmp_path / "listing"), host, opset)
    packaged = json.loads((rebuild_registry.DATA / f"ort_kernels_{REGISTRY_VERSION}.json").read_text())
    assert packaged.keys() == fresh.keys()
    for key in packaged.keys() - {"kernels"}:
        assert packaged[key] == json.loads(json.dumps(fresh[key])), key
    assert packaged["kernels"] == json.loads(json.dumps(fresh["kernels"]))
