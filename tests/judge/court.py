"""The judge: asks the real CUDA provider, loaded with stand-in libraries in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import standins

WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What ONNX Runtime does with one model.

    Attributes:
        nodes: Name, type and provider (``cuda``, ``cpu``) of every node that it places, subgraphs included,
            before the provider's own fusions; parts of a composite operator have no name.
        copies: Type (``MemcpyFromHost``, ``MemcpyToHost``), input and output of every inserted copy.
        inner_copies: The same inside of subgraphs.
        constants: Names of what is stored in the optimised graph.
        launches: Kernels that one run hands to the device; None where it was not run.
        error: Why no session can be made; empty where there is one.
    """

    nodes: tuple[tuple[str, str, str], ...] = ()
    copies: tuple[tuple[str, str, str], ...] = ()
    inner_copies: tuple[tuple[str, str, str], ...] = ()
    constants: frozenset[str] = frozenset()
    launches: int | None = None
    error: str = ""

    @property
    def assigned(self) -> dict[str, str]:
        """Provider by node name."""
        return {name: provider for name, _, provider in self.nodes if name}

    @property
    def tensors_copied(self) -> frozenset[tuple[str, str]]:
        """Direction and tensor of every copy, under the tensor's name in the original graph."""
        return _directed(self.copies)

    @property
    def tensors_copied_inside(self) -> frozenset[tuple[str, str]]:
        """The same of subgraphs."""
        return _directed(self.inner_copies)


def _directed(copies: Iterable[tuple[str, str, str]]) -> frozenset[tuple[str, str]]:
    return frozenset(
        ("to_gpu" if op_type == "MemcpyFromHost" else "to_cpu", min(source, target, key=len))
        for op_type, source, target in copies
    )


class Judge:
    """A child process with the stand-in libraries in ``folder``; started afresh when a model kills it.

    ``wheel`` is a folder with another release than the installed one, for which the stand-ins were built.
    """

    def __init__(self, folder: Path, *, wheel: Path | None = None) -> None:
        self.folder = folder
        self.wheel = wheel
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def rule(
        self,
        model: Any,
        *,
        level: int = 3,
        session: str = "cuda",
        keep: Path | None = None,
        feeds: Any = None,
        config: Mapping[str, str] | None = None,
    ) -> Ruling:
        """Asks about a ``ModelProto`` or the path of a model file.

        ``keep`` receives the optimised graph. With ``feeds`` (arrays by name) the model is run, which tells how
        many kernels it launches and nothing else. ``config`` holds further entries of the session's options.
        """
        path = model
        if not isinstance(model, (str, Path)):
            path = self.folder / "model.onnx"
            path.write_bytes(model.SerializeToString())
        request: dict[str, Any] = {
            "path": str(path),
            "optimized": str(keep or self.folder / "optimized.onnx"),
            "level": level,
            "session": session,
            "keep": keep is not None,
            "config": dict(config or {}),
        }
        if feeds is not None:
            import numpy as np

            np.savez(self.folder / "feeds.npz", **feeds)
            request["feeds"] = str(self.folder / "feeds.npz")
        answer = self._ask(request)
        return Ruling(
            nodes=tuple((name, op_type, provider) for name, op_type, provider in answer.get("nodes", ())),
            copies=tuple((op_type, source, target) for op_type, source, target in answer.get("copies", ())),
            inner_copies=tuple(
                (op_type, source, target) for op_type, source, target in answer.get("inner_copies", ())
            ),
            constants=frozenset(answer.get("constants", ())),
            launches=answer.get("launches"),
            error=answer.get("error", ""),
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process = self._process or self._start()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.close()
            return {"error": "died"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=standins.environment(self.folder, self.wheel),
        )
