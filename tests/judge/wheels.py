"""Wheels of other releases than the installed one, for those who have them at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Folders, separated as in PATH: each of `pip install --no-deps --target FOLDER onnxruntime-gpu==VERSION`.
VARIABLE = "ONNXRUNTIME_WHEELS"


def release_in(folder: Path) -> str:
    """The release of ONNX Runtime that was installed into a folder."""
    found = next(folder.glob("onnxruntime_gpu-*.dist-info"), None)
    if found is None:
        raise SystemExit(f"{folder} has no onnxruntime-gpu: pip install --no-deps --target fills it")
    return found.name.removesuffix(".dist-info").partition("-")[2]


def folder_of(release: str) -> Path | None:
    """The folder of a release, None where it is the installed one; skips where it is not at hand."""
    import onnxruntime

    if release == onnxruntime.__version__:
        return None
    folders = map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    found = next((folder for folder in folders if release_in(folder) == release), None)
    if found is None:
        pytest.skip(f"onnxruntime-gpu {release} is not at hand: {VARIABLE} names folders of other releases")
    return found
