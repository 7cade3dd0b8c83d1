"""ONNX Runtime's kernel registry as data: which provider has a kernel for which operator, opset and types.

Look-up mirrors ``onnxruntime/core/framework/kernel_registry.cc`` (``VerifyVersion``, ``MatchKernelDefTypes``).

The registries of several releases are data: ``data/ort_kernels_<version>.json`` is the newest release's whole
listing, ``data/ort_kernels_older.json`` what is another in each older one, told from the release after it.
``tests/judge/rebuild_registry.py`` writes both from the release wheels, and with each release the digest of its
whole listing. ONNX Runtime itself is not imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from analyzer.errors import UsageError
from analyzer.graph import DEFAULT_DOMAIN, UNDEFINED, DType, Node, Tensor
from analyzer.ort.execution import Provider
from analyzer.text import first_few

DISPLAY = {"cuda": "CUDA", "cpu": "CPU"}
# Newest opset and IR version of the onnx that a release was built with (VERSION_TABLE of onnx/helper.py).
_IR_BY_OPSET = ((21, 10), (23, 11), (24, 12), (27, 13), (28, 14))
# ONNX's own of which a release may know no operator.
_ONNX_DOMAINS = frozenset({"ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"})
_ONNX_TYPE_NAMES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One registered kernel: the schema versions it covers and the types it takes.

    Attributes:
        start: First schema version.
        end: Last schema version; None for an open end, which covers ``start`` alone: ONNX Runtime does not
            let an open-ended kernel serve a schema that was changed after it was written.
        types: Allowed element types by constraint: a type variable or a parameter's name.
    """

    start: int
    end: int | None
    types: Mapping[str, frozenset[str]]

    def covers(self, since: int) -> bool:
        """Return whether the kernel serves the operator's schema that came in with this version."""
        # ``VerifyVersion`` of kernel_registry.cc. This is how a newer opset falls back to the CPU in silence.
        return self.start == since or (self.end is not None and self.start <= since <= self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An operator's formal parameters: ``(name, type, option)`` with option ``?`` or ``*`` or empty."""

    inputs: tuple[tuple[str, str, str], ...]
    outputs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Registry:
    """The kernels and schemas of one ONNX Runtime release."""

    version: str
    data: Mapping[str, Any]
    _kernels: dict[tuple[str, str, str], tuple[Kernel, ...]] = field(default_factory=dict)
    # By all that the answer follows from; the layers of a model ask the same again and again.
    _has_kernel: dict[tuple[object, ...], bool] = field(default_factory=dict)

    @property
    def newest_opset(self) -> int:
        """Newest opset of the default domain that this release reads."""
        return int(self.data["newest_opset"])

    def refuses_opset(self, opset: int) -> str:
        """Return why this release does not load a model of this default opset; empty where it does."""
        # A release build refuses opsets that ONNX had not released when it was made
        # (onnxruntime/core/graph/model_load_utils.h, ValidateOpsetForDomain).
        if opset <= self.newest_opset:
            return ""
        return (
            f"ONNX Runtime {self.version} loads opsets up to {self.newest_opset}; this model is opset {opset}"
        )

    def refuses_ir(self, version: int) -> str:
        """Return why this release does not load a file of this IR version; empty where it does."""
        newest = next(ir for opset, ir in _IR_BY_OPSET if opset >= self.newest_opset)
        if version <= newest:
            return ""
        return f"ONNX Runtime {self.version} loads files up to IR version {newest}; this one has {version}"

    def lacks_operator(self, identity: tuple[str, str], opset: int) -> str:
        """Return why this release loads no model with this operator; empty where it has it, or a library may.

        ``identity`` is domain and type, ``opset`` that of the default domain.
        """
        domain, op_type = identity
        if domain == DEFAULT_DOMAIN:
            if not opset or self.refuses_opset(opset) or self.since(domain, op_type, opset) is not None:
                return ""
            return f"ONNX Runtime {self.version} has no operator {op_type} at opset {opset}"
        # Those of other domains may come with a library, as ai.onnx.contrib does with onnxruntime-extensions.
        schemas = self.data["schemas"]
        own = domain in schemas or domain in _ONNX_DOMAINS
        if not own or op_type in schemas.get(domain, {}):
            return ""
        return f"ONNX Runtime {self.version} has no operator {op_type} in the domain {domain}"

    def refuses_model(
        self, *, ir_version: int, opset: int, problems: Sequence[str], operators: Iterable[tuple[str, str]]
    ) -> str:
        """Return why this release does not load a model; empty where it does.

        A file without an ``ir_version`` has 0; ``problems`` are what is wrong with it whatever the release, as
        sentences.
        """
        refused = self.refuses_ir(ir_version) or self.refuses_opset(opset)
        lacking = (self.lacks_operator(identity, opset) for identity in sorted(set(operators)))
        return refused or next(iter(problems), "").rstrip(".") or next(filter(None, lacking), "")

    def since(self, domain: str, op_type: str, opset: int) -> int | None:
        """Version of the schema that is in force at this opset; None where there is none."""
        rows = self.data["schemas"].get(domain, {}).get(op_type, ())
        return max((row[0] for row in rows if row[0] <= opset), default=None)

    def signature(self, domain: str, op_type: str, since: int) -> Signature | None:
        """Formal parameters of the schema of this version."""
        parameters: list[Any] | None = None
        for row in self.data["schemas"].get(domain, {}).get(op_type, ()):
            if row[0] <= since and len(row) > 1:
                parameters = row[1:]
        if parameters is None:
            return None
        return Signature(
            inputs=tuple(map(_parameter, parameters[0])), outputs=tuple(map(_parameter, parameters[1]))
        )

    def kernels(self, provider: Provider, domain: str, op_type: str) -> tuple[Kernel, ...]:
        """Return every kernel of a provider for an operator, oldest first."""
        key = (provider, domain, op_type)
        if key not in self._kernels:
            rows = self.data["kernels"][provider].get(domain, {}).get(op_type, ())
            self._kernels[key] = tuple(
                Kernel(start=start, end=end, types={name: self._types(ref) for name, ref in refs.items()})
                for start, end, refs in rows
            )
        return self._kernels[key]

    def _types(self, reference: int) -> frozenset[str]:
        return frozenset(self.data["types"][reference].split(" "))

    def has_kernel(
        self, provider: Provider, node: Node, *, opset: int | None = None, half_as_float: bool = False
    ) -> bool:
        """Return whether the provider has a kernel for this node, at its own opset or another one.

        ``half_as_float`` asks for a float32 kernel in place of a float16 one.
        """
        version = node.version if opset is None else opset
        types = (_types(node.inputs), _types(node.outputs))
        key = (provider, node.domain, node.op_type, version, half_as_float, types)
        if key not in self._has_kernel:
            since = self.since(node.domain, node.op_type, version)
            self._has_kernel[key] = since is not None and any(
                not self.refusals(kernel, node, since, half_as_float=half_as_float)
                for kernel in self.covering(provider, node, since)
            )
        return self._has_kernel[key]

    def covering(self, provider: Provider, node: Node, since: int) -> Iterator[Kernel]:
        """Return the provider's kernels for this schema version, whatever the types."""
        return (kernel for kernel in self.kernels(provider, *node.identity) if kernel.covers(since))

    def refusals(
        self, kernel: Kernel, node: Node, since: int, *, half_as_float: bool = False
    ) -> dict[str, frozenset[str]]:
        """Element types of this node that the kernel does not take, with those that it takes in their place."""
        signature = self.signature(*node.identity, since)
        refused: dict[str, frozenset[str]] = {}
        for name, allowed in kernel.types.items():
            # ``MatchKernelDefTypes``: one argument of a constraint is looked at; the schema says that all are
            # alike.
            tensor = _first_bound(signature, node, name)
            if tensor is not None and tensor.dtype is not UNDEFINED:
                kind = type_name(tensor.dtype)
                # onnxruntime/core/optimizer/insert_cast_transformer.cc casts float16 alone, never bfloat16.
                if half_as_float and kind == "float16":
                    kind = "float"
                if kind not in allowed:
                    refused[kind] = allowed
        return refused

    def nearest(self, provider: Provider, node: Node) -> str:
        """Return which element types the provider's nearest kernel takes in place of the node's."""
        since = self.since(*node.identity, node.version)
        if since is None:
            return ""
        kernels = [self.refusals(kernel, node, since) for kernel in self.covering(provider, node, since)]
        nearest = min(kernels, key=len, default={})
        return " and ".join(
            f"{first_few(sorted(allowed))} in place of {kind}" for kind, allowed in nearest.items()
        )

    def lacks(self, node: Node) -> bool:
        """Return whether no provider has a kernel for this operator, at any opset and for any type."""
        return not any(self.kernels(provider, *node.identity) for provider in self.data["kernels"])

    def has_definition(self, node: Node) -> bool:
        """Return whether ONNX Runtime can put other operators in this one's place, by ONNX's definition of it.

        A definition is void at an opset by which one of the operators in it has changed.
        """
        # ``OpSchema::ValidateReferencedOpsInFunction`` in onnx/defs/schema.cc. A row without an opset is a
        # definition that depends on the call, which ONNX builds anew for each.
        if node.domain != DEFAULT_DOMAIN:
            return False
        since = self.since(*node.identity, node.version)
        rows = [row for row in self.data["functions"].get(node.op_type, ()) if row[0] == since]
        written = [row for row in rows if len(row) > 1 and row[1] <= node.version]
        if not written:
            return any(len(row) == 1 for row in rows)
        _, opset, used = max(written)
        return all(
            self.since(DEFAULT_DOMAIN, name, opset) == self.since(DEFAULT_DOMAIN, name, node.version)
            for name in used.split(" ")
        )

    def host_inputs(self, node: Node) -> Sequence[int]:
        """Return positions of the inputs that the CUDA kernel reads from host memory."""
        return self._host(node, "in")

    def host_outputs(self, node: Node) -> Sequence[int]:
        """Return positions of the outputs that the CUDA kernel writes to host memory."""
        return self._host(node, "out")

    # ``KernelDefBuilder::InputMemoryType`` and ``OutputMemoryType``
    # (include/onnxruntime/core/framework/kernel_def_builder.h).
    def _host(self, node: Node, side: str) -> Sequence[int]:
        if node.domain != DEFAULT_DOMAIN:
            return ()
        positions: Sequence[int] = self.data["host_memory"].get(node.op_type, {}).get(side, ())
        return positions

    def newest_opset_with_kernel(self, provider: Provider, node: Node) -> int | None:
        """Newest opset at which the provider has a kernel for this operator and these types."""
        if node.domain != DEFAULT_DOMAIN:
            return None
        opsets = range(self.newest_opset, 6, -1)  # ONNX Runtime promises nothing below opset 7
        return next((opset for opset in opsets if self.has_kernel(provider, node, opset=opset)), None)


def registry(release: str | None = None) -> Registry:
    """Return the registry of a release of ONNX Runtime; of the newest one that is known where none is named.

    ``1.29`` is the newest of its patches that is known.

    Raises:
        UsageError: Its registry is not known.
    """
    return _registry(find_release(release) if release else REGISTRY_VERSION)


@cache
def _registry(version: str) -> Registry:
    return Registry(version=version, data=listing(version))


def find_release(text: str) -> str:
    """Return the release that is meant: itself, or the newest known patch of a minor release (``1.29``).

    Raises:
        UsageError: Its registry is not known.
    """
    known = releases()
    meant = [version for version in known if text in (version, version.rpartition(".")[0])]
    if not meant:
        raise UsageError(
            f"ONNX Runtime {text}: the kernels of this release are not known.",
            hint=f"Known are {', '.join(known)}; {known[0].rpartition('.')[0]} alone means its newest patch.",
        )
    return meant[-1]


def type_name(dtype: DType) -> str:
    """ONNX's own name of a type, as the registry writes it (``float`` for ``float32``)."""
    return _ONNX_TYPE_NAMES.get(dtype.name, dtype.name)


def refusal(node: Node, *, provider: Provider = "cuda", known: Registry | None = None) -> tuple[str, str]:
    """Return why a provider has no kernel for a node: a slug and a sentence; both empty where it has one.

    ``known`` are the kernels of another release than the newest.
    """
    known = known or registry()
    if known.has_kernel(provider, node):
        return "", ""
    name, all_kernels = DISPLAY[provider], known.kernels(provider, *node.identity)
    if not all_kernels:
        return "no-cuda-kernel", f"ONNX Runtime {known.version} has no {name} kernel for {node.op_type}"
    since = known.since(*node.identity, node.version) or node.version
    covering = list(known.covering(provider, node, since))
    best = known.newest_opset_with_kernel(provider, node)
    remedy = f"; has one at opset {best}" if best is not None else ""
    if not covering:
        types = ", ".join(dict.fromkeys(type_name(tensor.dtype) for tensor in node.present_inputs))
        sentence = f"no {name} kernel for {node.op_type} since opset {since}"
        return "no-kernel-for-opset", sentence + (remedy or f" with {types}")
    refused = sorted({kind for kernel in covering for kind in known.refusals(kernel, node, since)})
    allowed = sorted({kind for kernel in covering for kinds in kernel.types.values() for kind in kinds})
    sentence = f"no {name} kernel for {node.op_type} with {', '.join(refused)} at opset {node.version}"
    return "no-kernel-for-type", sentence + (remedy or f"; the kernel takes {', '.join(allowed)}")


def _types(tensors: Sequence[Tensor | None]) -> tuple[str | None, ...]:
    return tuple(None if tensor is None else tensor.dtype.name for tensor in tensors)


def _parameter(text: str) -> tuple[str, str, str]:
    name, _, kind = text.partition(":")
    option = kind[-1] if kind[-1:] in ("?", "*") else ""
    return name, kind.removesuffix(option), option


def _first_bound(signature: Signature | None, node: Node, constraint: str) -> Tensor | None:
    """Return the first present argument that a constraint speaks of: by type variable or by parameter name."""
    if signature is None:
        return None
    sides = ((signature.inputs, node.inputs), (signature.outputs, node.outputs))
    for formals, actuals in sides:
        for position, tensor in enumerate(actuals):
            if tensor is None or not formals:
                continue
            name, kind, _ = formals[min(position, len(formals) - 1)]
            if constraint in (name, kind):
                return tensor
    return None


REGISTRY_VERSION = "1.31.1"
"""The newest release: what everything is worked out by where no other is asked for."""

OLDER = "ort_kernels_older.json"


def releases() -> tuple[str, ...]:
    """Return every release whose registry is known, oldest first."""
    older = [str(difference["version"]) for difference in _older()["releases"]]
    return (*reversed(older), REGISTRY_VERSION)


@cache
def listing(version: str) -> Mapping[str, Any]:
    """Return kernels and schemas of one of ``releases()``, by ``tests/judge/rebuild_registry.py``."""
    if version == REGISTRY_VERSION:
        return _read(f"ort_kernels_{REGISTRY_VERSION}.json")
    whole = {**listing(REGISTRY_VERSION)}
    # Differences name their types behind those of the whole listing.
    whole["types"] = [*whole["types"], *_older()["types"]]
    for difference in _older()["releases"]:
        whole = _before(whole, difference)
        if difference["version"] == version:
            return whole
    raise KeyError(version)


def _before(newer: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """Return the listing of a release, from that of the next newer one."""
    plain = {name: value for name, value in difference.items() if name not in ("kernels", "schemas")}
    return {
        **newer,
        **plain,
        "host_memory": _changed(newer["host_memory"], difference["host_memory"]),
        "schemas": _changed_domains(newer["schemas"], difference["schemas"]),
        "kernels": {
            provider: _changed_domains(domains, difference["kernels"].get(provider, {}))
            for provider, domains in newer["kernels"].items()
        },
    }


def _changed_domains(domains: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    every = {
        domain: _changed(domains.get(domain, {}), changes.get(domain, {}))
        for domain in dict.fromkeys((*domains, *changes))
    }
    return {domain: operators for domain, operators in every.items() if operators}


def _changed(operators: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows by operator; None among the changes is an operator that is not there."""
    return {name: rows for name, rows in {**operators, **changes}.items() if rows is not None}


@cache
def _older() -> Mapping[str, Any]:
    return _read(OLDER)


def _read(name: str) -> Mapping[str, Any]:
    text = (files("analyzer.ort") / "data" / name).read_text(encoding="utf-8")
    data: Mapping[str, Any] = json.loads(text)
    return data
