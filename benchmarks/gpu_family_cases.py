"""The operators that ``gpu_families.py`` measures: what a network that generates consists of, and small ones.

Each case is a model of several copies of one operator, side by side or one after the other, with weights and
caches of their own, so that they come from memory as they do in a network. Sizes are those of published
architectures; values are random (products of zeros draw less power, and run faster).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gpu_family_networks import (
    MICROSOFT,
    Attention,
    Case,
    Network,
    group_query_attention,
    pack,
    packed_product,
)
from gpu_networks import cases as networks
from gpu_networks import options
from gpu_pool_cases import pools
from gpu_step_cases import fused_steps, steps
from onnx import TensorProto, helper

# Weights and caches of one case together: several times what any last-level cache holds, and soon there.
_MOST_BYTES, _LEAST_BYTES = 3 << 30, 256 << 20
_COPIES = 30


def _copies(own_bytes: int) -> int:
    """How many copies of so many bytes of their own."""
    return max(2, min(_COPIES, _MOST_BYTES // max(1, own_bytes)))


# Depth and columns of the products of GPT-2, Llama 3.2 1B and Llama 3 8B.
_PRODUCTS = (
    (768, 768), (768, 3072), (2048, 2048), (2048, 8192),
    (4096, 1024), (4096, 4096), (4096, 14336), (14336, 4096),
)  # fmt: skip


def products() -> Iterator[Case]:
    """``[rows, depth] x [depth, columns]``, the weights' turn coming every so many copies."""
    for dtype, every in (("float16", _ROWS), ("bfloat16", _FEW_ROWS), ("float32", _FEW_ROWS)):
        for depth, columns in _PRODUCTS:
            for rows in every:
                net = Network()
                copies = _copies(depth * columns * np.dtype("float16").itemsize)
                x = net.feed("x", (rows, depth), dtype)
                for number in range(copies):
                    net.result(net.add("MatMul", x, net.feed(f"w{number}", (depth, columns), dtype)), dtype)
                sizes: dict[str, int | str] = {"dtype": dtype, "rows": rows, "depth": depth, "columns": columns}
                yield net.case("product", sizes, copies)


_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048)
_FEW_ROWS = (1, 16, 128, 2048)


def packed_products() -> Iterator[Case]:
    """MatMulNBits: four and eight bits, blocks of 32 and 128, 16-bit activations."""
    kinds = [(4, 32, "float16", _ROWS), (4, 128, "float16", _FEW_ROWS), (8, 32, "float16", _FEW_ROWS)]
    kinds += [(4, 32, "bfloat16", (1, 16, 512)), (4, 32, "float32", (1, 16, 512))]
    for bits, block, dtype, every in kinds:
        for depth, columns in _PRODUCTS[2:]:  # GPT-2 is not packed
            for rows in every:
                net = Network()
                copies = _copies(depth * columns * bits // 8)
                x = net.feed("x", (rows, depth), dtype)
                for number in range(copies):
                    packed = pack(net, f"w{number}", depth, columns, bits, block, dtype)
                    net.result(packed_product(net, x, packed, depth, columns, bits, block), dtype)
                sizes: dict[str, int | str] = {"dtype": dtype, "bits": bits, "block": block}
                yield net.case(
                    "packed product", {**sizes, "rows": rows, "depth": depth, "columns": columns}, copies
                )


# Heads of queries, of keys and values, and their size: Llama 3 8B, the same on 8 cards, Llama 2 7B, Qwen2.5 7B,
# Gemma 2 2B, GPT-2.
_HEADS = ((32, 8, 128), (4, 1, 128), (32, 32, 128), (28, 4, 128), (8, 4, 256), (12, 12, 64))


def attention() -> Iterator[Case]:
    """GroupQueryAttention: prefill into an empty cache, and one token on a full one."""
    for heads in _HEADS:
        for batch, tokens in ((1, 128), (1, 512), (1, 2048), (1, 8192), (4, 512), (4, 2048), (16, 512)):
            yield _attention(Attention(heads=heads, batch=batch, tokens=tokens, context=0))
        for batch, context in _DECODED:
            yield _attention(Attention(heads=heads, batch=batch, tokens=1, context=context))
    heads = _HEADS[0]
    for window in (1024, 4096):
        yield _attention(Attention(heads=heads, batch=1, tokens=8192, context=0, window=window))
        yield _attention(Attention(heads=heads, batch=8, tokens=1, context=8192, window=window))
    yield _attention(Attention(heads=heads, batch=1, tokens=2048, context=0, dtype="bfloat16"))
    yield _attention(Attention(heads=heads, batch=8, tokens=1, context=4096, dtype="bfloat16"))


_DECODED = ((1, 256), (1, 2048), (1, 8192), (1, 32768), (8, 512), (8, 4096), (32, 2048), (64, 512), (64, 4096))


def _attention(one: Attention) -> Case:
    net = Network()
    query_heads, kv_heads, size = one.heads
    own = 2 * one.batch * kv_heads * one.total * size * 2
    copies = min(8 if one.tokens > 1 else _COPIES, _copies(own))
    for number in range(copies):
        net.result(group_query_attention(net, str(number), one), one.dtype)
    phase = "decode" if one.context else "prefill"
    sizes: dict[str, int | str] = {"phase": phase, "dtype": one.dtype, "batch": one.batch, "tokens": one.tokens}
    sizes |= {"context": one.context, "heads": query_heads, "kv_heads": kv_heads, "head_size": size}
    return net.case("attention", {**sizes, "window": one.window}, copies)


def elementwise() -> Iterator[Case]:
    """Chains: each operator reads what the one before has just written."""
    kinds = ("Relu", "Add", "Softmax", "LayerNormalization", "SimplifiedLayerNormalization", "Transpose")
    for dtype, width in (("float16", 4096), ("float32", 1024)):
        for rows in (1, 16, 128, 512, 1024, 2048, 4096, 8192, 32768):
            for op_type in kinds:
                yield _chain(op_type, rows, width, dtype)


def _chain(op_type: str, rows: int, width: int, dtype: str) -> Case:
    net = Network()
    kind = np.dtype(dtype)
    value = net.feed("x", (rows, width), dtype)
    scale = net.store("scale", np.full(width, 0.9, kind))
    bias = net.store("bias", np.full(width, 0.1, kind))
    for _ in range(_COPIES):
        others: tuple[str, ...] = ()
        if op_type == "Add":
            others = ("x",)
        elif op_type == "LayerNormalization":
            others = (scale, bias)
        elif op_type == "SimplifiedLayerNormalization":
            others = (scale,)
        value = net.add(op_type, value, *others)
    net.result(value, dtype)
    return net.case("elementwise", {"op_type": op_type, "dtype": dtype, "rows": rows, "width": width}, _COPIES)


def launches() -> Iterator[Case]:
    """Chains of operators that do nothing to speak of: what a node costs the host, and a kernel the GPU."""
    for op_type in ("Relu", "Add", "Softmax", "MatMul", "LayerNormalization", "Reshape", "Transpose", "Gather"):
        for copies in (2, 30, 300):
            net = Network()
            value = net.feed("x", (32, 32), "float32")
            weight = net.store("w", np.full((32, 32), 0.03, np.float32))
            row = net.store("row", np.full(32, 0.5, np.float32))
            shape = net.store("shape", np.array([32, 32], np.int64))
            order = net.store("order", np.arange(32)[::-1].copy().astype(np.int64))
            others = {
                "Add": (row,),
                "MatMul": (weight,),
                "LayerNormalization": (row, row),
                "Reshape": (shape,),
                "Gather": (order,),
            }
            for _ in range(copies):
                value = net.add(op_type, value, *others.get(op_type, ()))
            net.result(value, "float32")
            yield net.case("launch", {"op_type": op_type, "nodes": copies}, copies)


def experts() -> Iterator[Case]:
    """MoE of Mixtral 8x7B on 2 cards (half of each expert) and of a finer one, by tokens."""
    for number, top, width, inner in ((8, 2, 4096, 7168), (64, 6, 2048, 1408)):
        for rows in (1, 4, 16, 64, 256, 1024):
            net = Network()
            own = number * width * inner * 3 * 2
            copies = min(6, _copies(own))
            x = net.feed("x", (rows, width), "float16")
            router = net.feed("router", (rows, number), "float16")
            for copy in range(copies):
                gate_and_up = net.feed(f"gate_and_up{copy}", (number, 2 * inner, width), "float16")
                down = net.feed(f"down{copy}", (number, width, inner), "float16")
                attributes: dict[str, Any] = {"k": top, "activation_type": "swiglu", "swiglu_fusion": 1}
                inputs = (x, router, gate_and_up, "", down)
                net.result(
                    net.add("MoE", *inputs, domain=MICROSOFT, normalize_routing_weights=1, **attributes),
                    "float16",
                )
            sizes: dict[str, int | str] = {
                "experts": number,
                "top": top,
                "width": width,
                "inner": inner,
                "rows": rows,
            }
            yield net.case("experts", sizes, copies)


# Width, heads, inner width and layers of the model that is built: Llama 3 8B, Llama 3.2 1B.
_DECODERS = (("llama-3-8b", 4096, (32, 8, 128), 14336), ("llama-3.2-1b", 2048, (32, 8, 64), 8192))
_LAYERS = 4


def decoders() -> Iterator[Case]:
    """Four layers of a Llama, fp16 and four-bit weights: a step by batch and context, and prefill."""
    for model, width, heads, inner in _DECODERS:
        for bits in (16, 4):
            for batch, tokens, context in _STEPS:
                step = Attention(heads=heads, batch=batch, tokens=tokens, context=context)
                net = _decoder(width, inner, bits, step)
                sizes: dict[str, int | str] = {"model": model, "bits": bits, "layers": _LAYERS}
                yield net.case(
                    "decoder layers", {**sizes, "batch": batch, "tokens": tokens, "context": context}, _LAYERS
                )


_STEPS = ((1, 1, 512), (1, 1, 8192), (8, 1, 2048), (64, 1, 1024), (1, 128, 0), (1, 2048, 0), (8, 512, 0))


def _decoder(width: int, inner: int, bits: int, step: Attention) -> Network:
    net = Network()
    kind = step.dtype
    query_heads, kv_heads, size = step.heads
    total = step.total
    angles = np.outer(np.arange(total), 1.0 / 10000 ** (np.arange(size // 2) / (size // 2)))
    rotary = (
        net.feed("cos", (total, size // 2), kind, values=np.cos(angles).astype(np.float16)),
        net.feed("sin", (total, size // 2), kind, values=np.sin(angles).astype(np.float16)),
    )

    def product(x: str, name: str, depth: int, columns: int) -> str:
        if bits == 16:
            return net.add("MatMul", x, net.feed(name, (depth, columns), kind))
        return packed_product(net, x, pack(net, name, depth, columns, bits, 32, kind), depth, columns, bits, 32)

    gamma = net.store("gamma", np.ones(width, np.float16))
    residual = net.feed("x", (step.batch, step.tokens, width), kind)
    normed = net.add("SimplifiedLayerNormalization", residual, gamma)
    for layer in range(_LAYERS):
        query = product(normed, f"q{layer}", width, query_heads * size)
        key, value = (product(normed, f"{name}{layer}", width, kv_heads * size) for name in ("k", "v"))
        attended = group_query_attention(net, str(layer), step, projected=(query, key, value), rotary=rotary)
        normed, residual = _skip(
            net, product(attended, f"o{layer}", query_heads * size, width), residual, gamma
        )
        gate = product(normed, f"gate{layer}", width, inner)
        up = product(normed, f"up{layer}", width, inner)
        swished = net.add("Mul", net.add("Mul", gate, net.add("Sigmoid", gate)), up)
        normed, residual = _skip(net, product(swished, f"down{layer}", inner, width), residual, gamma)
    net.result(normed, kind)
    return net


def _skip(net: Network, value: str, residual: str, gamma: str) -> tuple[str, str]:
    name = f"SkipSimplifiedLayerNormalization_{len(net.nodes)}"
    results = [name, "", "", f"{name}_sum"]
    net.nodes.append(
        helper.make_node(
            "SkipSimplifiedLayerNormalization",
            [value, residual, gamma],
            results,
            name=f"n_{name}",
            domain=MICROSOFT,
            epsilon=1e-5,
        )
    )
    return name, f"{name}_sum"


def quantised() -> Iterator[Case]:
    """Whole small models as quantisers leave them, optimised as a session does by default."""
    for rows in (1, 32, 512):
        for form in ("float32", "float16", "blocked int8", "blocked int4", "dynamic"):
            yield _four_products(form, rows)
    for batch in (1, 32):
        for form in ("float32", "float16", "QDQ int8"):
            yield _six_convolutions(form, batch)


_WIDTH, _BLOCK = 2048, 32


def _four_products(form: str, rows: int) -> Case:
    """Four products of 2048 columns, one after the other; the quantised weights are blocked by 32 rows."""
    net = Network()
    random = np.random.default_rng(0)
    kind = "float16" if form == "float16" else "float32"
    value = net.feed("x", (rows, _WIDTH), kind)
    for number in range(4):
        dense = (random.standard_normal((_WIDTH, _WIDTH)) / _WIDTH**0.5).astype(kind)
        if form.startswith("blocked"):
            whole = np.abs(dense.reshape(_WIDTH // _BLOCK, _BLOCK, _WIDTH)).max(axis=1)
            most = 127 if form.endswith("8") else 7
            scales = (whole / most).astype(np.float32)
            levels = np.rint(dense / np.repeat(scales, _BLOCK, axis=0)).clip(-most, most).astype(np.int8)
            name = f"w{number}"
            if form.endswith("8"):
                net.store(name, levels)
            else:
                packed = (levels.reshape(-1, 2)[:, 0] & 15 | (levels.reshape(-1, 2)[:, 1] & 15) << 4).astype(
                    np.uint8
                )
                net.stored[name] = helper.make_tensor(
                    name, TensorProto.INT4, dense.shape, packed.tobytes(), raw=True
                )
            weight = net.add(
                "DequantizeLinear", name, net.store(f"s{number}", scales), axis=0, block_size=_BLOCK
            )
            value = net.add("MatMul", value, weight)
        elif form == "dynamic":
            scale = np.float32(np.abs(dense).max() / 127)
            levels = net.store(f"w{number}", np.rint(dense / scale).astype(np.int8))
            low = net.add("DynamicQuantizeLinear", value, outputs=3)
            zero = net.store("zero", np.array(0, np.int8))
            sums = net.add("MatMulInteger", low, str(levels), f"{low}_2", zero)
            factor = net.add("Mul", f"{low}_1", net.store(f"s{number}", np.array(scale)))
            value = net.add("Mul", net.add("Cast", sums, to=TensorProto.FLOAT), factor)
        else:
            value = net.add("MatMul", value, net.store(f"w{number}", dense))
    net.result(value, kind)
    return net.case("quantised", {"model": "four products", "form": form, "batch": rows}, 1, optimized=True)


def _six_convolutions(form: str, batch: int) -> Case:
    """Six convolutions 3x3 of 64 channels on 56 x 56, each with a Relu."""
    net = Network()
    random = np.random.default_rng(0)
    kind = "float16" if form == "float16" else "float32"
    value = net.feed("x", (batch, 64, 56, 56), kind)
    scale, zero = net.store("scale", np.array(0.02, np.float32)), net.store("zero", np.array(0, np.int8))

    def through_int8(name: str) -> str:
        return net.add("DequantizeLinear", net.add("QuantizeLinear", name, scale, zero), scale, zero)

    if form == "QDQ int8":
        value = through_int8(value)
    for number in range(6):
        dense = (random.standard_normal((64, 64, 3, 3)) / 24).astype(kind)
        if form == "QDQ int8":
            levels = net.store(f"w{number}", np.rint(dense / 0.002).clip(-127, 127).astype(np.int8))
            own = net.store("weight_scale", np.full(64, 0.002, np.float32))
            weight = net.add("DequantizeLinear", levels, own, net.store("zeros", np.zeros(64, np.int8)), axis=0)
            value = net.add("Relu", net.add("Conv", value, weight, pads=[1, 1, 1, 1]))
            value = through_int8(value)
        else:
            value = net.add("Relu", net.add("Conv", value, net.store(f"w{number}", dense), pads=[1, 1, 1, 1]))
    net.result(value, kind)
    return net.case("quantised", {"model": "six convolutions", "form": form, "batch": batch}, 1, optimized=True)


# Channels in and out, side of the image, filter, stride, groups: of ResNet-50, MobileNet V2, U-Net, VGG, ViT,
# EfficientNet, ConvNeXt.
_CONVOLUTIONS = (
    (3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 256, 56, 1, 1, 1), (256, 64, 56, 1, 1, 1),
    (64, 64, 56, 3, 1, 1), (256, 512, 56, 1, 2, 1), (128, 128, 56, 3, 2, 1), (512, 128, 28, 1, 1, 1),
    (128, 128, 28, 3, 1, 1), (256, 256, 28, 3, 2, 1), (256, 1024, 14, 1, 1, 1), (256, 256, 14, 3, 1, 1),
    (1024, 2048, 14, 1, 2, 1), (512, 512, 7, 3, 1, 1), (2048, 512, 7, 1, 1, 1), (3, 32, 224, 3, 2, 1),
    (32, 32, 112, 3, 1, 32), (96, 96, 112, 3, 2, 96), (144, 24, 56, 1, 1, 1), (384, 384, 14, 3, 1, 384),
    (96, 576, 14, 1, 1, 1), (960, 160, 7, 1, 1, 1), (64, 64, 224, 3, 1, 1), (128, 128, 112, 3, 1, 1),
    (512, 512, 28, 3, 1, 1), (3, 768, 224, 16, 16, 1), (96, 96, 56, 7, 1, 96), (240, 240, 28, 5, 1, 240),
    (3, 64, 224, 3, 1, 1), (256, 256, 56, 3, 1, 32),
)  # fmt: skip


def convolutions() -> Iterator[Case]:
    """One convolution with its bias, in NCHW."""
    for dtype in ("float32", "float16"):
        for batch in (1, 32):
            for channels, filters, side, size, stride, groups in _CONVOLUTIONS:
                net = Network()
                x = net.feed("x", (batch, channels, side, side), dtype)
                draw = np.random.default_rng(0)
                shape = (filters, channels // groups, size, size)
                scale = np.prod(shape[1:]) ** -0.5
                weight = net.store("w", (draw.standard_normal(shape) * scale).astype(dtype))
                bias = net.store("b", np.full(filters, 0.1, dtype))
                pad = 0 if stride == size else size // 2
                attributes = {"pads": [pad] * 4, "strides": [stride] * 2, "group": groups}
                net.result(net.add("Conv", x, weight, bias, **attributes), dtype)
                sizes: dict[str, int | str] = {"dtype": dtype, "batch": batch, "channels": channels}
                sizes |= {"filters": filters, "side": side, "size": size, "stride": stride, "groups": groups}
                yield net.case("convolution", sizes, 1)


def biased_products() -> Iterator[Case]:
    """Gemm with a bias of its columns."""
    for dtype in ("float32", "float16"):
        for depth, columns in ((768, 768), (768, 3072), (3072, 768), (4096, 4096), (2048, 1000)):
            for rows in (1, 64, 512, 2048, 8192):
                net = Network()
                names = (
                    net.feed("x", (rows, depth), dtype),
                    net.feed("w", (depth, columns), dtype),
                    net.feed("b", (columns,), dtype),
                )
                net.result(net.add("Gemm", *names), dtype)
                sizes: dict[str, int | str] = {"dtype": dtype, "rows": rows, "depth": depth, "columns": columns}
                yield net.case("product with bias", sizes, 1)


def unaligned_products() -> Iterator[Case]:
    """Products whose rows of memory do not begin at multiples of 16 bytes, beside those that do."""
    shapes = [(1, rows, 768, columns) for columns in (50256, 50257) for rows in (1, 64, 512)]
    shapes += [(96, side, 64, side) for side in (196, 197, 198, 200)]
    shapes += [(96, side, side, 64) for side in (196, 197, 198, 200)]
    shapes += [(1, 2048, depth, 1024) for depth in (1023, 1024, 1026, 1028)]
    for dtype in ("float32", "float16"):
        for batch, rows, depth, columns in shapes:
            net = Network()
            front = (batch,) if batch > 1 else ()
            x = net.feed("x", (*front, rows, depth), dtype)
            net.result(net.add("MatMul", x, net.feed("w", (*front, depth, columns), dtype)), dtype)
            sizes: dict[str, int | str] = {"dtype": dtype, "batch": batch, "rows": rows}
            yield net.case("unaligned product", {**sizes, "depth": depth, "columns": columns}, 1)


FAMILIES: Mapping[str, Callable[[], Iterator[Case]]] = {
    "launch": launches,
    "quantised": quantised,
    "attention": attention,
    "packed product": packed_products,
    "decoder layers": decoders,
    "product": products,
    "elementwise": elementwise,
    "experts": experts,
    "generation": steps,
    "fused weights": fused_steps,
    "convolution": convolutions,
    "network": networks,
    "option": options,
    "pool": pools,
    "product with bias": biased_products,
    "unaligned product": unaligned_products,
}
