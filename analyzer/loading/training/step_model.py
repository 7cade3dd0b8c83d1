"""The joint graph -> a weight-free ONNX model of the whole step, with the optimizer appended."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING, Any

from analyzer.loading.loaded import STEP_KEY, Step
from analyzer.loading.onnx_graph.construction import SCOPES
from analyzer.loading.python.source_lines import built_at, source_line
from analyzer.loading.python.user_model import UserModel
from analyzer.loading.torch_export.export import finish, lighten, listed, origin_properties
from analyzer.loading.torch_export.tracing import quiet_exporter
from analyzer.loading.training import torch_interfaces
from analyzer.loading.training.joint_graph import Joint, TracedOrigin
from analyzer.loading.training.recipe import Update
from analyzer.loading.training.translations import table, take_type
from analyzer.training_operators import DOMAIN

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from numpy.typing import NDArray

STEP_INPUT = "optimizer.step"  # how many steps were made; a number, not a shape, so one graph serves all steps
LOSS = "loss"  # the step's first result
NEW = ".new"  # after the name of what is carried to the next step


def to_step(
    user: UserModel, joint: Joint, opset: int, notes: list[str]
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the ModelProto of the step, and the names of large constants that the model does not hold."""
    with quiet_exporter():
        model = torch_interfaces.translate(joint.module, table(notes), opset)
        held_back = lighten(model)
        # After folding, when shapes are known: both look for matrices and for large tensors.
        merge_transposes(model)
        split_large_sums(model)
    _attach(model, joint, built_at(user.model))
    step = _Appended(model, joint).finished()
    # An optional result that nothing reads has no name in ONNX.
    graph_outputs = set(map(id, model.graph.outputs))
    for node in model.graph.all_nodes():
        # Of ONNX's operators those that a step has and that have optional results.
        if node.domain != DOMAIN and node.op_type not in ("MaxPool", "Dropout", "LayerNormalization"):
            continue
        for value in node.outputs:
            if not value.uses() and id(value) not in graph_outputs:
                value.name = ""
    finished = finish(model, held_back, set(), keep=lambda _: True)
    proto = finished.proto
    if not any(entry.domain == DOMAIN for entry in proto.opset_import):
        proto.opset_import.add(domain=DOMAIN, version=1)  # the optimizer alone may be of it
    proto.metadata_props.add(key=STEP_KEY, value=json.dumps(asdict(step), sort_keys=True))
    return proto, finished.needs_values


def _attach(model: ir.Model, joint: Joint, built: Mapping[str, tuple[str, int]]) -> None:
    """Phase, module and source line of every operator, by the name of the traced node that it came from."""
    nowhere = TracedOrigin(phase="forward", module="", kind="", trace="")
    phases: dict[str, str] = {}
    for node in model.graph.all_nodes():
        scopes = listed(node.metadata_props.get(SCOPES, "[]"))
        place = joint.places.get(scopes[-1], nowhere) if scopes else nowhere
        phase = place.phase
        if any(value is not None and phases.get(value.name or "") == "backward" for value in node.inputs):
            phase = "backward"  # what reads a gradient, whatever the tracer called it
        phases.update((value.name or "", phase) for value in node.outputs)
        # What belongs to no module is the loss: the line that built the whole model is not its line.
        line = source_line(place.trace, place.module, built if place.module else {})
        node.metadata_props.clear()
        node.metadata_props.update(origin_properties(place.module, place.kind, line))
        node.metadata_props["analyzer.phase"] = phase


class _Appended:
    """Renames what the graph takes and gives, and appends one operator per trained parameter."""

    def __init__(self, model: ir.Model, joint: Joint) -> None:
        self.graph = model.graph
        self.joint = joint
        self.carried: dict[str, str] = {}
        self.weights: list[str] = []
        self.states: list[str] = []
        self.gradients: dict[str, str] = {}
        self.fed: list[str] = []
        self.latest: dict[str, ir.Value] = {}

    def finished(self) -> Step:
        """Write inputs, outputs and optimizer, in that order."""
        outputs = list(self.graph.outputs)
        self._name_inputs()
        self.graph.outputs.clear()
        gradients: dict[str, ir.Value] = {}
        for value, slot in zip(outputs, self.joint.outputs, strict=True):
            if slot.kind == "gradient":
                gradients[slot.name] = self._named(value, f"{slot.name}.grad")
                self.gradients[slot.name] = f"{slot.name}.grad"
            elif slot.kind == "update" and slot.name in self.joint.updates:
                self.latest[slot.name] = value  # the optimizer updates what the forward pass has changed
            elif slot.kind == "update":
                self.graph.outputs.append(self._named(value, slot.name + NEW))
                self.carried[slot.name] = slot.name + NEW
            else:
                self.graph.outputs.append(self._named(value, LOSS))
        corrections = self._corrections()
        for name, gradient in gradients.items():
            self._update(name, gradient, corrections)
        for name in self.weights:
            self.carried.setdefault(name, name)
        optimizers = {update.op_type for update in self.joint.updates.values()}
        first = next(iter(self.joint.updates.values()), Update(op_type=""))
        return Step(
            carried=self.carried,
            weights=tuple(self.weights),
            states=tuple(self.states),
            gradients=self.gradients,
            fed=tuple(self.fed),
            random=self.joint.random,
            optimizer=", ".join(sorted(optimizers)),
            options=dict(first.options),
        )

    def _name_inputs(self) -> None:
        fixed = {slot.name for slot in self.joint.inputs.values() if slot.kind == "state"} | {LOSS}
        taken = set(fixed)
        for value in self.graph.inputs:
            traced_name = value.name or ""
            slot = self.joint.inputs[traced_name]
            if slot.kind == "state":
                value.name = slot.name
                self.weights.append(slot.name)
                self.latest[slot.name] = value
                continue
            has_name = 0 <= slot.position < len(self.joint.names)
            name = self.joint.names[slot.position] if has_name else traced_name
            # A tensor has one name in ONNX; an argument may be called as a parameter, the loss or a target.
            name = _unlike(f"{name}_input" if name in fixed else name, taken)
            taken.add(name)
            value.name = name
            self.fed.append(name)
        # Other names for results that the translation calls as an input is: ``cat`` of ``torch.cat``.
        results = [value for node in self.graph.all_nodes() for value in node.outputs if value.name]
        used = taken | {value.name or "" for value in results} | set(self.graph.initializers)
        for value in results:
            if value.name in taken:
                value.name = _unlike(value.name, used)
                used.add(value.name)

    def _named(self, value: ir.Value, name: str) -> ir.Value:
        """Return the value under this name; a copy of one that is an input or has been named already."""
        import onnx_ir

        if value.producer() is None or value.name in {*self.gradients.values(), *self.carried.values(), LOSS}:
            node = onnx_ir.node("Identity", [value])
            node.metadata_props["analyzer.phase"] = "backward"
            self.graph.append(node)
            take_type(node.outputs[0], value)
            value = node.outputs[0]
        value.name = name
        return value

    def _input(self, name: str, like: ir.Value | None = None) -> ir.Value:
        import onnx_ir

        value = onnx_ir.Value(name=name)
        _type_like(value, like)
        self.graph.inputs.append(value)
        self.states.append(name)
        self.carried[name] = name + NEW
        return value

    def _operator(
        self, op_type: str, inputs: Sequence[ir.Value], outputs: Sequence[tuple[str, ir.Value | None]], *,
        domain: str = "", attributes: Mapping[str, Any] | None = None, module: str = "",
    ) -> list[ir.Value]:  # fmt: skip
        import onnx_ir

        node = onnx_ir.node(
            op_type, inputs, attributes=dict(attributes or {}), domain=domain, num_outputs=len(outputs),
            name=f"optimizer/{op_type}/{outputs[0][0].removesuffix(NEW)}",
        )  # fmt: skip
        if domain:
            node.version = 1
        node.metadata_props["analyzer.phase"] = "optimizer"
        if module:
            node.metadata_props["analyzer.module"] = module
        for value, (name, like) in zip(node.outputs, outputs, strict=True):
            value.name = name
            _type_like(value, like)
        self.graph.append(node)
        return list(node.outputs)

    def _scalar(self, value: float) -> ir.Value:
        import numpy as np

        return _constant(self.graph, f"optimizer/{value!r}", np.asarray(value, np.float32))

    def _corrections(self) -> dict[tuple[float, ...], tuple[ir.Value, ir.Value]]:
        """Adam's step size and second correction, once for each set of options: only the step matters.

        ``lr / (1 - beta1^t)`` and ``sqrt(1 - beta2^t)``, as ``_single_tensor_adam`` of torch/optim/adam.py.
        """
        groups = {
            (update.options["lr"], update.options["beta1"], update.options["beta2"])
            for update in self.joint.updates.values()
            if "beta1" in update.options
        }
        if not groups:
            return {}
        step = self._input(STEP_INPUT)
        (count,) = self._operator("Add", [step, self._scalar(1.0)], [(STEP_INPUT + NEW, None)])
        self.graph.outputs.append(count)
        corrections: dict[tuple[float, ...], tuple[ir.Value, ir.Value]] = {}
        for number, key in enumerate(sorted(groups)):
            rate, *betas = key
            one = self._scalar(1.0)
            remainders: list[ir.Value] = []
            for beta in betas:
                tag = f"optimizer.{number}.beta{len(remainders) + 1}"
                (power,) = self._operator("Pow", [self._scalar(beta), count], [(f"{tag}.power", None)])
                remainders += self._operator("Sub", [one, power], [(f"{tag}.correction", None)])
            (step_size,) = self._operator(
                "Div", [self._scalar(rate), remainders[0]], [(f"optimizer.{number}.step_size", None)]
            )
            (root,) = self._operator("Sqrt", [remainders[1]], [(f"optimizer.{number}.root", None)])
            corrections[key] = (step_size, root)
        return corrections

    def _update(
        self, name: str, gradient: ir.Value, corrections: Mapping[tuple[float, ...], tuple[ir.Value, ir.Value]]
    ) -> None:
        update = self.joint.updates[name]
        options = update.options
        parameter = self.latest[name]
        states = [self._input(f"{name}.{state}", parameter) for state in update.states]
        # In the order that training_operators/optimizer_steps.py reads them.
        inputs = [parameter, gradient, *states]
        if "beta1" in options:
            inputs += corrections[options["lr"], options["beta1"], options["beta2"]]
        outputs = [(f"{value.name}{NEW}", parameter) for value in (parameter, *states)]
        self.carried[name] = name + NEW
        updated = self._operator(
            update.op_type, inputs, outputs, domain=DOMAIN, attributes=options, module=name.rpartition(".")[0]
        )
        self.graph.outputs.extend(updated)


def _unlike(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number behind it where it is taken."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(candidate for candidate in itertools.chain([name], numbered) if candidate not in taken)


def _type_like(value: ir.Value, like: ir.Value | None) -> None:
    """Return the type of another value, else that of one number."""
    import onnx_ir

    sizes = like.shape if like is not None else None
    dtype = like.dtype if like is not None else None
    value.shape = onnx_ir.Shape([] if sizes is None else sizes)
    value.dtype = onnx_ir.DataType.FLOAT if dtype is None else dtype


# Sums over all of a large tensor, in two rounds: ONNX Runtime adds one after another in single precision. Its
# CPU provider's mean of 10^8 squares is off by 2 %; over the last axes first and then over the rest, by 2e-7.
# Numbers of one example that may be added one after another: rounding errors grow with them. The batch does not
# count, so that the step has the same operators at every batch.
_AT_ONCE = 2**10


def split_large_sums(model: ir.Model) -> None:
    """Put a round over the last axes before every sum or mean of more than 1,024 numbers an example to one."""
    for node in list(model.graph):
        if node.domain or node.op_type not in ("ReduceMean", "ReduceSum") or not node.inputs:
            continue
        source, result = node.inputs[0], node.outputs[0]
        sizes, result_sizes = _sizes(source), _sizes(result)
        if source is None or sizes is None or result_sizes is None:
            continue
        if len(sizes) > 1 and prod(sizes[1:]) > _AT_ONCE and prod(result_sizes) == 1:
            _split(model, node, source, sizes)


def _sizes(value: ir.Value | None) -> list[int] | None:
    """Return a value's sizes where all are known."""
    if value is None or value.shape is None:
        return None
    sizes = [size for size in value.shape if isinstance(size, int)]
    return sizes if len(sizes) == len(value.shape) else None


def _split(model: ir.Model, node: ir.Node, source: ir.Value, sizes: list[int]) -> None:
    import numpy as np
    import onnx_ir

    first = (len(sizes) + 1) // 2  # about as many axes in each round; the batch is in the second
    name = f"axes/{first}-{len(sizes)}"
    axes = _constant(model.graph, name, np.arange(first, len(sizes), dtype=np.int64))
    inner = onnx_ir.node(node.op_type, [source, axes], attributes={"keepdims": 1}, name=f"{node.name}/inner")
    inner.metadata_props.update(node.metadata_props)
    value = inner.outputs[0]
    value.name = f"{node.outputs[0].name}/inner"
    take_type(value, source)
    value.shape = onnx_ir.Shape(sizes[:first] + [1] * (len(sizes) - first))
    model.graph.insert_before(node, inner)
    node.replace_input_with(0, value)


def _constant(graph: ir.Graph, name: str, array: NDArray[Any]) -> ir.Value:
    """Return the initializer of that name, made where there is none."""
    import onnx_ir

    if name not in graph.initializers:
        tensor = onnx_ir.tensor(array, name=name)
        graph.initializers[name] = onnx_ir.Value(
            name=name,
            const_value=tensor,
            shape=onnx_ir.Shape(array.shape),
            type=onnx_ir.TensorType(tensor.dtype),
        )
    return graph.initializers[name]


_FLAGS = ("transA", "transB")


def merge_transposes(model: ir.Model) -> None:
    """Turn a product of matrices of which one is transposed into ``Gemm`` with ``transA`` or ``transB``."""
    # First what is turned twice, which is what it was: the gradient of a Linear turns its weight back.
    for node in list(model.graph):
        source = _before_transpose(_before_transpose(node.outputs[0])) if _is_transpose(node) else None
        if source is not None:
            node.outputs[0].replace_all_uses_with(source, replace_graph_outputs=True)
    _drop_unused(model)
    for node in list(model.graph):
        if node.domain or node.op_type not in ("MatMul", "Gemm") or not all(map(_is_matrix, node.inputs[:2])):
            continue
        sources = [_before_transpose(value) for value in node.inputs[:2]]
        if any(source is not None and source.shape is not None for source in sources):
            # One kernel reads either way (a flag of BLAS); a Transpose would be a copy, placed and timed.
            operands = [source or value for source, value in zip(sources, node.inputs[:2], strict=True)]
            flags = [
                bool(node.attributes.get_int(name, 0)) != (source is not None)
                for name, source in zip(_FLAGS, sources, strict=True)
            ]
            _replace(model, node, node, [*operands, *node.inputs[2:]], flags)
    for node in list(model.graph):
        # (A B)^T = B^T A^T: the gradient of a weight, which PyTorch makes as a product and turns.
        product = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if product is not None and _is_transpose(node) and _is_lone_product(node.inputs[0]):
            flags = [not product.attributes.get_int(name, 0) for name in reversed(_FLAGS)]
            _replace(model, node, product, [product.inputs[1], product.inputs[0]], flags)
            model.graph.remove(product, safe=True)
    _drop_unused(model)


def _is_matrix(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape) == 2


def _before_transpose(value: ir.Value | None) -> ir.Value | None:
    """Return what a value is the transpose of; None where it is none."""
    producer = value.producer() if value is not None else None
    return producer.inputs[0] if producer is not None and _is_transpose(producer) else None


def _is_transpose(node: ir.Node) -> bool:
    if node.op_type != "Transpose" or node.domain:
        return False
    attribute = node.attributes.get("perm")
    return (attribute is None or list(attribute.as_ints()) == [1, 0]) and _is_matrix(node.outputs[0])


def _is_lone_product(value: ir.Value | None) -> bool:
    """Return whether a value is a product of two matrices, without a third summand, that is read once."""
    producer = value.producer() if value is not None else None
    if value is None or producer is None or producer.domain:
        return False
    if value.is_graph_output() or len(value.uses()) != 1:
        return False
    if producer.op_type == "MatMul":
        return all(map(_is_matrix, producer.inputs))
    return producer.op_type == "Gemm" and len(producer.inputs) == 2  # a summand would have to be turned too


def _replace(
    model: ir.Model, node: ir.Node, product: ir.Node, operands: Sequence[ir.Value | None], flags: Sequence[bool]
) -> None:
    """Put a product of other operands, under the name of ``product``, in the place of a node."""
    import onnx_ir

    attributes: dict[str, int | float] = dict(zip(_FLAGS, map(int, flags), strict=True))
    scales = {name: product.attributes[name] for name in ("alpha", "beta") if name in product.attributes}
    attributes |= {name: scale.as_float() for name, scale in scales.items()}
    merged = onnx_ir.node("Gemm", operands, attributes=attributes, name=product.name)
    merged.metadata_props.update(product.metadata_props)
    old, new = node.outputs[0], merged.outputs[0]
    take_type(new, old)
    new.name = old.name
    model.graph.insert_before(node, merged)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    model.graph.remove(node, safe=True)


def _drop_unused(model: ir.Model) -> None:
    outputs = set(map(id, model.graph.outputs))
    for node in reversed(list(model.graph)):
        if node.op_type == "Transpose" and not any(
            value.uses() or id(value) in outputs for value in node.outputs
        ):
            model.graph.remove(node, safe=True)
