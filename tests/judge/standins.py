"""Builds the stand-in CUDA libraries that let the real CUDA provider load on a machine without a GPU."""

from __future__ import annotations

import importlib.util
import mmap
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("standins.c")
COMPUTE_CAPABILITY = (9, 0)  # an H100 or H200
STAND_IN_FOR = re.compile(r"lib(cu|nv)\w+\.so")
# Symbols that carry no version: which library holds them.
HOME = {"cuTensorMapEncodeTiled": "libcuda.so.1"}
UNVERSIONED_HOME = "libnvinfer.so.10"
# Functions of cuBLAS and cuDNN that run something on the device.
LAUNCHES = re.compile(
    r"^cublas.*(gemm|Gemm|geam|getr|Matmul$|MatrixTransform$|copy_v2|scal_v2)"
    r"|^cudnn(\w*Forward\w*|AddTensor|ReduceTensor|BackendExecute)$"
)
CUDNN = "libcudnn.so.9"  # opened at run time, its functions looked up by name


def missing() -> str:
    """Says in one plain sentence why the judge cannot work here; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "the judge needs Linux"
    for tool in ("gcc", "nm", "readelf"):
        if shutil.which(tool) is None:
            return f"the judge needs {tool}"
    if not _provider("cuda").is_file():
        return "the judge needs the onnxruntime-gpu wheel"
    return ""


def build(folder: Path, *, providers: tuple[str, ...] = ("cuda",), wheel: Path | None = None) -> Path:
    """Builds every library that these providers are linked with and that a GPU machine would have.

    Returns the folder, which is what ``LD_LIBRARY_PATH`` must name. TensorRT is only wanted for reading the
    kernel registry: ONNX Runtime's listing walks over all providers and dies where one does not load.
    ``wheel`` is a folder into which another release was installed (``pip install --target``).
    """
    wanted: dict[str, set[str]] = {}
    for provider in providers:
        path = _provider(provider, wheel)
        for library in _needed(path):
            wanted.setdefault(library, set())
        for symbol, library in _undefined(path).items():
            wanted.setdefault(library, set()).add(symbol)
    wanted.setdefault(CUDNN, set()).update(_asked_by_name(_provider("cuda", wheel)))
    written = set(re.findall(r"\b((?:__)?cu[A-Za-z]\w+)\b", SOURCE.read_text()))
    major = int(next(re.search(r"\d+", library)[0] for library in wanted if "cudart" in library))  # type: ignore[index]
    for library, symbols in wanted.items():
        _compile(folder, library, sorted(symbols), written, major)
    return folder


def build_driver(folder: Path) -> Path:
    """Builds a stand-in for the library that tells of GPUs, beside the others."""
    source = SOURCE.with_name("standins_nvml.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-w", "-o", folder / "libnvidia-ml.so.1", source],
        check=True,
        capture_output=True,
    )
    return folder


def environment(folder: Path, wheel: Path | None = None) -> dict[str, str]:
    """What a child process needs to load the providers with stand-ins, the installed ones or a wheel's."""
    first = {} if wheel is None else {"PYTHONPATH": os.pathsep.join([str(wheel), *_python_path()])}
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "CUDA_VISIBLE_DEVICES": "0", **first}


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _provider(name: str, wheel: Path | None = None) -> Path:
    """A provider's library in the installed wheel or another; nothing is imported."""
    if wheel is not None:
        home = wheel / "onnxruntime"
    else:
        spec = importlib.util.find_spec("onnxruntime")
        home = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    return home / "capi" / f"libonnxruntime_providers_{name}.so"


def _needed(path: Path) -> list[str]:
    listing = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    return [name for name in re.findall(r"NEEDED.*\[(\S+)\]", listing) if STAND_IN_FOR.match(name)]


def _undefined(path: Path) -> dict[str, str]:
    """The library that each symbol without a home on this machine comes from."""
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", path], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, str] = {}
    for name, version in re.findall(r"^ +U (\w+)(?:@+(\S+))?$", listing, re.MULTILINE):
        if STAND_IN_FOR.match(version):
            found[name] = version
        elif not version and name != "Provider_GetHost":  # ONNX Runtime's own
            found[name] = HOME.get(name, UNVERSIONED_HOME)
    return found


def _asked_by_name(path: Path) -> set[str]:
    """Names of cuDNN's functions among the provider's strings."""
    found: set[str] = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(b"\0cudnn")
        while at >= 0:
            end = data.find(b"\0", at + 1)
            name = data[at + 1 : end].decode("ascii", "replace")
            if name.isidentifier():
                found.add(name)
            at = data.find(b"\0cudnn", end)
    return found


def _compile(folder: Path, library: str, symbols: list[str], written: set[str], major: int) -> None:
    """One shared library with exactly these symbols, under the version name that the provider asks for."""
    rest = folder / f"{library}.c"
    functions = (
        f"int {name}(void) {{ standin_launches += {int(bool(LAUNCHES.search(name)))}; return 0; }}\n"
        for name in symbols
        if name not in written
    )
    rest.write_text("extern int standin_launches;\n" + "".join(functions))
    script = folder / f"{library}.map"
    own = ("standin_count", "standin_calls", "standin_forget")
    exported = "".join(f"{name};" for name in (*own, *symbols))
    versioned = "" if library in (*HOME.values(), UNVERSIONED_HOME) else f"{library} "
    script.write_text(f"{versioned}{{ global: {exported} local: *; }};\n")
    command: list[str | Path] = [
        "gcc", "-shared", "-fPIC", "-O1", "-w",
        f"-DRUNTIME_VERSION={major * 1000}",
        f"-DCOMPUTE_MAJOR={COMPUTE_CAPABILITY[0]}", f"-DCOMPUTE_MINOR={COMPUTE_CAPABILITY[1]}",
        f"-Wl,-soname,{library}", f"-Wl,--version-script={script}",
        "-o", folder / library, SOURCE, rest,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
