"""Our placement by an older release against that release's own CUDA provider."""

from __future__ import annotations

from pathlib import Path

import agreement
import court
import pytest
import standins
import wheels

from analyzer.ort.kernels import REGISTRY_VERSION, releases

# Loaded cases of the node backend of onnx 1.23.2; agreement.py lists the copies that differ.
LEAST_CASES = 1450


@pytest.mark.parametrize("release", [release for release in releases() if release != REGISTRY_VERSION])
def test_the_backend_cases_are_placed_as_an_older_release_does(release: str, tmp_path: Path) -> None:
    if standins.missing():
        pytest.skip(standins.missing())
    wheel = wheels.folder_of(release)
    with court.Judge(standins.build(tmp_path, wheel=wheel), wheel=wheel) as judge:
        loaded, total = agreement.of_backend_cases(judge, release)
    print(f"{release}: {loaded} cases, {total.nodes} nodes, {total.share:.3%} agree, {total.copies} copies")
    assert loaded >= LEAST_CASES
    assert total.share >= 0.998
