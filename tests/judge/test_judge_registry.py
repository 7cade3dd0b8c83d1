"""The registries that the analyzer carries are those of the releases that they name."""

from __future__ import annotations

import json

import pytest

from analyzer.ort.kernels import REGISTRY_VERSION, listing, releases


@pytest.mark.parametrize("release", releases())
def test_what_is_read_back_is_the_whole_listing_of_the_releases_own_wheel(release: str) -> None:
    rebuild_registry = pytest.importorskip("rebuild_registry")
    assert listing(release)["version"] == release
    assert rebuild_registry.digest(listing(release)) == listing(release)["digest"]


def test_no_two_releases_list_the_same() -> None:
    assert len({listing(release)["digest"] for release in releases()}) == len(releases())


def test_the_differences_of_what_is_read_back_are_those_in_the_package() -> None:
    rebuild_registry = pytest.importorskip("rebuild_registry")
    written = rebuild_registry.differences([listing(release) for release in reversed(releases())])
    packaged = json.loads((rebuild_registry.DATA / rebuild_registry.OLDER).read_text(encoding="utf-8"))
    assert json.loads(json.dumps(written)) == packaged


@pytest.mark.parametrize("release", releases())
def test_the_packaged_registry_is_what_the_release_itself_says(release: str) -> None:
    standins = pytest.importorskip("standins")
    if standins.missing():
        pytest.skip(standins.missing())
    import rebuild_registry
    import wheels

    fresh = rebuild_registry.whole(wheels.folder_of(release))
    assert fresh["digest"] == listing(release)["digest"]
    if release == REGISTRY_VERSION:  # the one that is kept as it was read
        assert json.loads(json.dumps(fresh)) == listing(release)
