"""One-operator models by form: each kind of loop by type, axis, rank, mode and size, made systematically."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from operator_cases import Array, Case, below, floats, number, whole

MICROSOFT = "com.microsoft"
_TYPES: dict[str, Any] = {
    "f4": np.float32,
    "f8": np.float64,
    "i8": np.int64,
    "i4": np.int32,
    "u1": np.uint8,
    "i1": np.int8,
    "b1": np.bool_,
    "f2": np.float16,
}


def sweep() -> Iterator[Case]:
    """All of them; of each operator and type some sizes, shapes, axes and modes."""
    yield from _unary()
    yield from _binary()
    yield from _reductions()
    yield from _along_an_axis()
    yield from _normalized()
    yield from _moved()
    yield from _indexed()
    yield from _images()
    yield from _pools()
    yield from _convolved()
    yield from _products()
    yield from _quantized()
    yield from _contributed()
    yield from _rare()
    yield from _others()


def _of(kind: str, *shape: int) -> Array:
    if kind == "b1":
        return below(2, *shape).astype(bool)
    values = floats(*shape) if kind.startswith("f") else below(100, *shape)
    return np.asarray(values).astype(_TYPES[kind])


def _one(op: str, note: str, *fed: Array, stored: tuple[Array | None, ...] = (), **kwargs: Any) -> Case:
    outputs, opset, domain = kwargs.pop("outputs", 1), kwargs.pop("opset", 20), kwargs.pop("domain", "")
    return Case(f"{op} {note}", op, fed, stored, outputs=outputs, attributes=kwargs, opset=opset, domain=domain)


_FLOAT_UNARY = (
    *(
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Celu",
        "Ceil",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
    ),
    *(
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Abs",
    ),
    *(
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
    ),
    *("Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
)


def _unary() -> Iterator[Case]:
    for op, size in product(_FLOAT_UNARY, (20_000, 400_000)):
        x = floats(size) if op not in ("Log", "Sqrt", "Acosh") else np.abs(floats(size)) + 1
        yield _one(op, f"f4 {size}", np.tanh(x) if op in ("Acos", "Asin", "Atanh") else x)
    for op in (
        "Abs",
        "Ceil",
        "Cos",
        "Exp",
        "Floor",
        "Log",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sin",
        "Sqrt",
        "Tanh",
        "Sign",
        "IsNaN",
    ):
        yield _one(op, "f8", np.abs(_of("f8", 256, 512)) + 1)
    for op, kind in product(("Abs", "Neg", "Sign"), ("i8", "i4", "i1")):
        yield _one(op, kind, _of(kind, 256, 512))
    yield _one("Relu", "i4", _of("i4", 256, 512))
    yield _one("Not", "b1", _of("b1", 256, 512))
    yield _one("BitwiseNot", "i4", _of("i4", 256, 512), opset=18)
    for source, target in product(("f4", "f8", "i8", "i4", "u1", "b1", "f2"), repeat=2):
        if source != target:
            number_of = {"f4": 1, "f8": 11, "i8": 7, "i4": 6, "u1": 2, "b1": 9, "f2": 10}[target]
            yield _one("Cast", f"{source} to {target}", _of(source, 256, 512), to=number_of)
    for kind in ("f4", "f8", "i8", "i4", "u1"):
        bounds = (np.array(3, _TYPES[kind]), np.array(60, _TYPES[kind]))
        yield _one("Clip", kind, _of(kind, 256, 512), stored=bounds)
    yield _one("Gelu", "tanh", floats(256, 512), approximate="tanh")


_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_BROADCASTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "same": ((128, 64, 32), (128, 64, 32)),
    "scalar": ((128, 64, 32), ()),
    "last": ((128, 64, 32), (32,)),
    "rows": ((128, 64, 32), (128, 64, 1)),
    "middle": ((128, 64, 32), (64, 1)),
    "first": ((128, 64, 32), (128, 1, 1)),
    "both": ((128, 1, 32), (1, 64, 1)),
    "channels": ((2, 64, 32, 32), (64, 1, 1)),
    "outer": ((512, 1), (1, 512)),
}


def _binary() -> Iterator[Case]:
    for op, (how, (left, right)) in product(
        ("Add", "Mul", "Div", "Max", "Greater", "Equal", "Pow"), _BROADCASTS.items()
    ):
        yield _one(op, f"f4 {how}", np.asarray(np.abs(floats(*left))), np.asarray(np.abs(floats(*right))))
    for op, kind in product(
        (*_ARITHMETIC, "Max", "Min", "Greater", "LessOrEqual", "Equal"), ("f8", "i8", "i4", "u1")
    ):
        if op in ("Min", "Max", "Equal", "Greater", "LessOrEqual") or kind != "u1":
            for how in ("same", "scalar", "middle"):
                left, right = _BROADCASTS[how]
                yield _one(
                    op, f"{kind} {how}", _of(kind, *left), np.asarray(_of(kind, *right) + 1, _TYPES[kind])
                )
    for kind, exponent in product(("f4", "f8", "i4", "i8"), (2.0, 3.0, 0.5)):
        if kind.startswith("f") or exponent != 0.5:
            power = np.array(exponent, _TYPES[kind])
            yield _one("Pow", f"{kind} {exponent}", np.asarray(np.abs(_of(kind, 256, 512))), stored=(power,))
    for kind in ("i8", "i4", "u1"):
        for how in ("same", "scalar"):
            left, right = _BROADCASTS[how]
            yield _one(
                "Mod", f"{kind} {how}", _of(kind, *left), np.asarray(_of(kind, *right) + 1, _TYPES[kind])
            )
    yield from _selected()


def _selected() -> Iterator[Case]:
    for how in ("same", "scalar", "middle"):
        left, right = _BROADCASTS[how]
        yield _one("Mod", f"f4 {how}", floats(*left), np.asarray(floats(*right) + 3, np.float32), fmod=1)
        yield _one("PRelu", how, floats(*left), stored=(floats(*right),))
        for op in ("And", "Or", "Xor"):
            yield _one(op, how, _of("b1", *left), _of("b1", *right))
        yield _one("BitwiseAnd", f"i4 {how}", _of("i4", *left), _of("i4", *right), opset=18)
        yield _one(
            "BitShift", f"u1 {how}", _of("u1", *left), np.asarray(_of("u1", *right) % 4), direction="LEFT"
        )
        for kind in ("f4", "i8", "u1"):
            yield _one("Where", f"{kind} {how}", _of("b1", *left), _of(kind, *left), _of(kind, *right))
        yield _one("Where", f"condition {how}", _of("b1", *right), floats(*left), floats(*left))
    for op, many in product(("Sum", "Mean", "Max", "Min"), (2, 4)):
        yield _one(op, f"of {many}", *(floats(256, 512) for _ in range(many)))


_REDUCED: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "last": ((256, 1024), (1,)),
    "first": ((256, 1024), (0,)),
    "all": ((256, 1024), (0, 1)),
    "middle": ((16, 64, 256), (1,)),
    "plane": ((2, 64, 32, 32), (2, 3)),
    "channels": ((2, 64, 32, 32), (1,)),
    "apart": ((16, 32, 16, 32), (0, 2)),
    "short": ((16384, 8), (1,)),
    "outer two": ((16, 16, 1024), (0, 1)),
    "ends": ((32, 256, 32), (0, 2)),
}


def _reductions() -> Iterator[Case]:
    ops = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    for op, (how, (shape, axes)) in product(ops, _REDUCED.items()):
        x = np.abs(floats(*shape)) * 0.1 + 0.95
        yield _one(f"Reduce{op}", f"f4 {how}", np.asarray(x, np.float32), stored=(whole(*axes),), keepdims=0)
    for op, kind, how in product(("Sum", "Max", "L2", "Mean"), ("f8", "i8", "i4"), ("last", "first", "middle")):
        shape, axes = _REDUCED[how]
        yield _one(f"Reduce{op}", f"{kind} {how}", _of(kind, *shape), stored=(whole(*axes),), keepdims=0)
    for op, kind, how in product(
        ("ArgMax", "ArgMin"), ("f4", "i8", "i4", "u1"), ("last", "first", "middle", "short")
    ):
        if op == "ArgMax" or kind == "f4":
            shape, axes = _REDUCED[how]
            yield _one(op, f"{kind} {how}", _of(kind, *shape), axis=axes[0], keepdims=0)
    for shape in ((1, 64, 56, 56), (8, 256, 7, 7), (2, 64, 1000), (1, 32, 8, 28, 28)):
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            yield _one(op, "x".join(map(str, shape)), floats(*shape))


def _along_an_axis() -> Iterator[Case]:
    shape: tuple[int, ...]
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {
        (1024, 256): (0, 1),
        (1, 21, 96, 96): (1, 2, 3),
        (8, 64, 256): (1, 2),
        (20000, 10): (1, 0),
    }
    for op, (shape, axes) in product(("Softmax", "LogSoftmax", "Hardmax"), shapes.items()):
        for axis in axes:
            yield _one(op, f"{'x'.join(map(str, shape))} axis {axis}", floats(*shape), axis=axis)
    for axis in (0, 1):
        yield _one("Softmax", f"f8 axis {axis}", _of("f8", 512, 256), axis=axis)
        yield _one("LpNormalization", f"axis {axis}", floats(512, 256), axis=axis)
        yield _one("Softmax", f"opset 11 axis {axis}", floats(32, 64, 64), axis=axis, opset=11)
    yield _one("LpNormalization", "p 1", floats(512, 256), axis=1, p=1)
    yield _one("LpNormalization", "channels", floats(2, 64, 32, 32), axis=1)
    for kind, (shape, axes) in product(
        ("f4", "f8", "i8", "i4"), {(256, 1024): (0, 1), (16, 64, 256): (0, 1, 2)}.items()
    ):
        for axis in axes:
            name = f"{kind} {'x'.join(map(str, shape))} axis {axis}"
            yield _one("CumSum", name, _of(kind, *shape), stored=(np.array(axis),))
    yield _one("CumSum", "reversed", floats(256, 1024), stored=(np.array(1),), reverse=1, exclusive=1)
    for shape, axis, kept in (
        ((64, 4096), 1, 10),
        ((4096, 64), 0, 10),
        ((64, 64, 64), 1, 5),
        ((1, 50000), 1, 100),
        ((64, 1000), 1, 1),
        ((256, 256), 1, 256),
    ):
        name = f"{kept} of {'x'.join(map(str, shape))} axis {axis}"
        yield _one("TopK", name, floats(*shape), stored=(whole(kept),), outputs=2, axis=axis)
        yield _one("TopK", f"i8 {name}", below(10**6, *shape), stored=(whole(kept),), outputs=2, axis=axis)
    yield _one("TopK", "unsorted", floats(64, 4096), stored=(whole(10),), outputs=2, sorted=0)


def _normalized() -> Iterator[Case]:
    shape: tuple[int, ...]
    for shape, axis in (((512, 768), -1), ((16384, 32), -1), ((64, 56, 56), 1), ((8, 128, 1024), -1)):
        size = int(np.prod(shape[axis:]))
        scale = floats(size).reshape(shape[axis:])
        name = f"{'x'.join(map(str, shape))} axis {axis}"
        yield _one("LayerNormalization", name, floats(*shape), stored=(scale, scale), axis=axis)
        yield _one("RMSNormalization", name, floats(*shape), stored=(scale,), axis=axis, opset=23)
    yield _one("LayerNormalization", "f8", _of("f8", 512, 256), stored=(_of("f8", 256), _of("f8", 256)))
    for shape in (
        (20000, 32),
        (64, 1024),
        (2, 32, 56, 56),
        (8, 128, 14, 14),
        (2, 64, 2000),
        (1, 16, 8, 28, 28),
        (500, 8),
    ):
        channels = [np.abs(floats(shape[1])) + 1 for _ in range(4)]
        name = "x".join(map(str, shape))
        yield _one("BatchNormalization", name, floats(*shape), stored=tuple(channels))
        if len(shape) > 2:
            yield _one("InstanceNormalization", name, floats(*shape), stored=tuple(channels[:2]))
            yield _one(
                "GroupNormalization", name, floats(*shape), stored=tuple(channels[:2]), num_groups=4, opset=21
            )
    yield _one(
        "BatchNormalization",
        "f8",
        _of("f8", 2, 32, 56, 56),
        stored=tuple(np.abs(_of("f8", 32)) for _ in range(4)),
    )
    for size, shape in product((3, 5, 9), ((1, 64, 28, 28), (4, 16, 14, 14))):
        yield _one("LRN", f"{size} of {'x'.join(map(str, shape))}", floats(*shape), size=size)
    for axes in ((0, 2, 3), (1, 2, 3), (1,)):
        yield _one("MeanVarianceNormalization", f"axes {axes}", floats(2, 32, 32, 32), axes=axes)


def _moved() -> Iterator[Case]:
    orders = (
        ((512, 600), (1, 0)),
        ((60, 8000), (1, 0)),
        ((8, 120, 300), (0, 2, 1)),
        ((64, 32, 100), (1, 0, 2)),
        ((30, 40, 250), (2, 1, 0)),
        ((2, 60, 50, 50), (0, 2, 3, 1)),
        ((2, 50, 50, 60), (0, 3, 1, 2)),
        ((2, 128, 12, 64), (0, 2, 1, 3)),
        ((2, 128, 12, 64), (0, 2, 3, 1)),
        ((10, 20, 30, 40), (3, 2, 1, 0)),
        ((8, 6, 14, 14, 32), (0, 2, 1, 3, 4)),
        ((4, 3, 8, 20, 20), (0, 2, 3, 4, 1)),
        ((8, 14, 14, 4, 20), (1, 0, 3, 2, 4)),
        ((8, 16, 16, 16, 8), (0, 3, 1, 4, 2)),
        ((1, 4, 8, 8, 4, 4, 6), (0, 1, 2, 4, 3, 5, 6)),
    )
    for (shape, perm), kind in product(orders, ("f4", "i8", "u1", "f2")):
        if kind in ("f4", "u1") or len(shape) == 4:
            name = f"{kind} {'x'.join(map(str, shape))} {perm}"
            yield _one("Transpose", name, _of(kind, *shape), perm=perm)
    for kind in ("f4", "i8", "u1"):
        x, image = _of(kind, 256, 1000), _of(kind, 2, 32, 60, 60)
        zero = np.array(0, _TYPES[kind])
        for axis, many in product((0, 1), (2, 8)):
            parts = [_of(kind, 128, 128) for _ in range(many)]
            yield _one("Concat", f"{kind} {many} axis {axis}", *parts, axis=axis)
            yield _one(
                "Split",
                f"{kind} {many} axis {axis}",
                _of(kind, 512, 512),
                outputs=many,
                num_outputs=many,
                axis=axis,
            )
        yield _one("Slice", f"{kind} last", x, stored=(whole(10), whole(900), whole(1)))
        yield _one("Slice", f"{kind} steps", x, stored=(whole(0), whole(1000), whole(1), whole(3)))
        yield _one("Slice", f"{kind} rows", x, stored=(whole(10), whole(200), whole(0)))
        yield _one("Slice", f"{kind} backwards", x, stored=(whole(-1), whole(-2000), whole(1), whole(-1)))
        yield _one("Slice", f"{kind} window", image, stored=(whole(0, 2, 2), whole(32, 58, 58), whole(1, 2, 3)))
        for mode in ("constant", "reflect", "edge", "wrap"):
            pads = whole(0, 0, 2, 2, 0, 0, 2, 2)
            constant = (zero,) if mode == "constant" else ()
            yield _one("Pad", f"{kind} {mode} plane", image, stored=(pads, *constant), mode=mode, opset=19)
            yield _one(
                "Pad", f"{kind} {mode} last", x, stored=(whole(0, 3, 0, 0), *constant), mode=mode, opset=19
            )
        for repeats in ((1, 4), (4, 1), (2, 2)):
            yield _one("Tile", f"{kind} {repeats}", _of(kind, 256, 200), stored=(whole(*repeats),))
        yield _one("Tile", f"{kind} short", _of(kind, 64, 64, 3), stored=(whole(1, 1, 8),))
        for name, shape in (
            ("last", (256, 1)),
            ("first", (1, 1000)),
            ("middle", (64, 1, 64)),
            ("scalar", (1,)),
        ):
            target = (64, 40, 64) if len(shape) == 3 else (256, 1000)
            yield _one("Expand", f"{kind} {name}", _of(kind, *shape), stored=(whole(*target),))
        if kind != "u1":
            yield _one("Trilu", f"{kind} upper", _of(kind, 8, 200, 200))
            yield _one("Trilu", f"{kind} lower", _of(kind, 600, 600), upper=0)
        yield _one(
            "ReverseSequence",
            f"{kind} batch 1",
            _of(kind, 64, 16, 100),
            np.full(16, 50, np.int64),
            time_axis=0,
            batch_axis=1,
        )
        yield _one(
            "ReverseSequence",
            f"{kind} batch 0",
            _of(kind, 16, 64, 100),
            np.full(16, 50, np.int64),
            time_axis=1,
            batch_axis=0,
        )
        for axis in (0, 1, -1):
            extra: dict[str, Any] = {} if axis < 0 else {"axis": axis}
            mask = _of("b1", 256 if axis == 0 else 1000 if axis == 1 else 256000)
            yield _one("Compress", f"{kind} axis {None if axis < 0 else axis}", x, mask, **extra)
        yield _one("NonZero", kind, _of(kind, 256, 512))
    yield from _rearranged()


def _rearranged() -> Iterator[Case]:
    for kind, mode, size in product(("f4", "u1"), ("DCR", "CRD"), (2, 4)):
        yield _one("DepthToSpace", f"{kind} {mode} {size}", _of(kind, 1, 64, 64, 64), blocksize=size, mode=mode)
    for kind, size in product(("f4", "u1"), (2, 4)):
        yield _one("SpaceToDepth", f"{kind} {size}", _of(kind, 1, 8, 128, 128), blocksize=size)
    yield _one("EyeLike", "f4", floats(500, 500))


def _indexed() -> Iterator[Case]:
    for kind, (rows, width) in product(("f4", "i8", "u1"), ((4000, 64), (500, 768), (200000, 1))):
        table = _of(kind, rows, width)
        many = 200_000 // width
        yield _one("Gather", f"{kind} rows of {width}", table, below(rows, many), axis=0)
        yield _one("GatherND", f"{kind} rows of {width}", table, below(rows, many, 1))
        yield _one("ScatterND", f"{kind} rows of {width}", table, below(rows, many, 1), _of(kind, many, width))
    yield _one("Gather", "columns", floats(512, 1000), below(1000, 300), axis=1)
    yield _one("Gather", "middle", floats(64, 100, 64), below(100, 60), axis=1)
    yield _one("GatherND", "batch", floats(8, 100, 100, 16), below(100, 8, 500, 2), batch_dims=1)
    for shape, axis in product(((256, 512), (16, 64, 128)), (0, 1, -1)):
        places = below(shape[axis], *shape)
        name = f"{'x'.join(map(str, shape))} axis {axis}"
        for kind in ("f4", "i8", "u1"):
            yield _one("GatherElements", f"{kind} {name}", _of(kind, *shape), places, axis=axis)
            yield _one(
                "ScatterElements", f"{kind} {name}", _of(kind, *shape), places, _of(kind, *shape), axis=axis
            )
    for how in ("add", "mul", "max"):
        yield _one("ScatterND", how, floats(4000, 64), below(4000, 3000, 1), floats(3000, 64), reduction=how)
        yield _one(
            "ScatterElements",
            how,
            floats(256, 512),
            below(256, 256, 512),
            floats(256, 512),
            axis=0,
            reduction=how,
        )
    for axis, depth in ((-1, 1000), (0, 1000), (1, 50)):
        shape = (64, 40) if axis == 1 else (256,)
        values = np.array([0, 1], np.float32)
        yield _one("OneHot", f"axis {axis}", below(depth, *shape), stored=(np.array(depth), values), axis=axis)
    for kind, size in product(("f4", "i8"), (2000, 50_000)):
        yield _one("Unique", f"{kind} {size}", below(500, size).astype(_TYPES[kind]), outputs=4)
    yield _one("Unique", "axis 0", below(3, 500, 4).astype(np.float32), outputs=4, axis=0)
    boxes = np.sort(np.abs(floats(1, 3000, 4)), -1)
    for classes in (1, 20):
        yield _one(
            "NonMaxSuppression",
            f"{classes} classes",
            boxes,
            np.abs(floats(1, classes, 3000)),
            stored=(np.array([100]), np.array([0.5], np.float32), np.array([0.5], np.float32)),
        )


def _images() -> Iterator[Case]:
    images = {"1d": (1, 64, 2000), "2d": (1, 16, 60, 60), "3d": (1, 8, 10, 24, 24), "last": (1, 60, 60, 16)}
    for mode, (name, shape), scale in product(("nearest", "linear", "cubic"), images.items(), (2.0, 1.5, 0.5)):
        for how in ("half_pixel", "asymmetric", "align_corners"):
            if mode == "cubic" and name != "2d":
                continue
            along = slice(1, -1) if name == "last" else slice(2, None)
            scales = np.ones(len(shape), np.float32)
            scales[along] = scale
            rest = {"nearest_mode": "floor"} if how == "asymmetric" else {}
            yield _one(
                "Resize",
                f"{mode} {name} {scale} {how}",
                floats(*shape),
                stored=(None, scales),
                mode=mode,
                coordinate_transformation_mode=how,
                **rest,
            )
    sizes = whole(1, 16, 120, 120)
    for kind, mode in product(("u1", "i4"), ("nearest", "linear")):
        yield _one("Resize", f"{kind} {mode}", _of(kind, 1, 16, 60, 60), stored=(None, None, sizes), mode=mode)
    for mode, shape in product(("linear", "cubic"), ((1, 3, 256, 256), (1, 16, 60, 60))):
        small = np.array([1, 1, 0.5, 0.5], np.float32)
        yield _one(
            "Resize",
            f"antialias {mode} {shape[1]}",
            floats(*shape),
            stored=(None, small),
            mode=mode,
            antialias=1,
        )
    for mode, pad, align in product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)):
        for channels, side in ((3, 100), (32, 40)):
            yield _one(
                "GridSample",
                f"{mode} {pad} {align} {channels}",
                floats(1, channels, side, side),
                np.tanh(floats(1, side, side, 2)),
                mode=mode,
                padding_mode=pad,
                align_corners=align,
            )
    for mode, pad in product(("linear", "nearest"), ("zeros", "border")):
        yield _one(
            "GridSample",
            f"3d {mode} {pad}",
            floats(1, 8, 12, 24, 24),
            np.tanh(floats(1, 12, 24, 24, 3)),
            mode=mode,
            padding_mode=pad,
        )
    for rois, ratio, mode in ((20, 0, "avg"), (100, 2, "avg"), (100, 2, "max")):
        corners = np.sort(np.abs(floats(rois, 4)) * 20, axis=1)
        yield _one(
            "RoiAlign",
            f"{rois} {ratio} {mode}",
            floats(1, 64, 50, 50),
            corners,
            below(1, rois),
            output_height=7,
            output_width=7,
            sampling_ratio=ratio,
            mode=mode,
        )
    boxes = np.concatenate([np.zeros((50, 1)), np.sort(np.abs(floats(50, 4)) * 20, axis=1)], 1).astype(
        np.float32
    )
    yield _one("MaxRoiPool", "50", floats(1, 64, 50, 50), boxes, pooled_shape=[7, 7])
    for size, align in product(((1, 3, 128, 128), (4, 3, 32, 32), (1, 1, 16, 32, 32)), (0, 1)):
        rank = len(size) - 2
        yield _one(
            "AffineGrid",
            f"{'x'.join(map(str, size))} {align}",
            floats(size[0], rank, rank + 1),
            stored=(whole(*size),),
            align_corners=align,
        )
    for kernel, channels in ((3, 16), (2, 64), (5, 4)):
        pads = [kernel // 2] * 4
        side = 32 + 2 * pads[0] - kernel + 1
        yield _one(
            "Col2Im",
            f"{kernel} {channels}",
            floats(1, channels * kernel**2, side * side),
            stored=(whole(32, 32), whole(kernel, kernel)),
            pads=pads,
        )
    places = (np.arange(16 * 32 * 32) * 4).reshape(1, 16, 32, 32)
    yield _one("MaxUnpool", "2", floats(1, 16, 32, 32), places, kernel_shape=[2, 2], strides=[2, 2])


def _pools() -> Iterator[Case]:
    shapes = {1: (1, 32, 8000), 2: (1, 32, 80, 80), 3: (1, 16, 16, 32, 32)}
    for op, (rank, shape), size, stride in product(
        ("MaxPool", "AveragePool", "LpPool"), shapes.items(), (2, 3, 5), (1, 2)
    ):
        yield _one(
            op,
            f"{rank}d {size} stride {stride}",
            floats(*shape),
            kernel_shape=[size] * rank,
            strides=[stride] * rank,
            pads=[size // 2] * 2 * rank,
        )
    yield _one("MaxPool", "13", floats(1, 64, 20, 20), kernel_shape=[13, 13], pads=[6] * 4)
    yield _one("MaxPool", "indices", floats(1, 32, 80, 80), kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    yield _one("MaxPool", "dilated", floats(1, 32, 80, 80), kernel_shape=[3, 3], dilations=[2, 2])
    yield _one("MaxPool", "u1", _of("u1", 1, 32, 80, 80), kernel_shape=[3, 3], strides=[2, 2])
    yield _one(
        "AveragePool",
        "counting pads",
        floats(1, 32, 80, 80),
        kernel_shape=[3, 3],
        pads=[1] * 4,
        count_include_pad=1,
    )


def _convolved() -> Iterator[Case]:
    sides = {1: (600,), 2: (28, 28), 3: (8, 14, 14)}
    for rank, (kernel, stride, groups) in product(
        sides, ((3, 1, 1), (1, 1, 1), (5, 2, 1), (3, 1, 4), (3, 1, 64))
    ):
        weights = floats(64, 64 // groups, *(kernel,) * rank)
        yield _one(
            "Conv",
            f"{rank}d {kernel} stride {stride} groups {groups}",
            floats(1, 64, *sides[rank]),
            stored=(weights,),
            group=groups,
            strides=[stride] * rank,
            pads=[kernel // 2] * 2 * rank,
        )
    for rank, (kernel, stride, groups) in product(
        sides, ((2, 2, 1), (4, 2, 1), (3, 1, 1), (4, 2, 4), (4, 2, 64))
    ):
        if rank == 3 and kernel == 4 and groups == 1:
            continue
        weights = floats(64, 64 // groups, *(kernel,) * rank)
        yield _one(
            "ConvTranspose",
            f"{rank}d {kernel} stride {stride} groups {groups}",
            floats(1, 64, *sides[rank]),
            stored=(weights,),
            group=groups,
            strides=[stride] * rank,
        )
    yield _one(
        "Conv", "dilated", floats(1, 32, 64, 64), stored=(floats(32, 32, 3, 3),), pads=[4] * 4, dilations=[4, 4]
    )
    for kernel, channels in ((3, 32), (1, 64), (5, 8)):
        offsets = floats(1, 2 * kernel**2, 32, 32)
        yield Case(
            f"DeformConv {kernel} {channels}",
            "DeformConv",
            (floats(1, channels, 32, 32), floats(channels, channels, kernel, kernel), offsets),
            attributes={"pads": [kernel // 2] * 4},
            opset=19,
        )
    for rank, kernel, groups in product((2, 1), (1, 3), (1, 32)):
        weights = below(255, 32, 32 // groups, *(kernel,) * rank).astype(np.uint8)
        yield _one(
            "ConvInteger",
            f"{rank}d {kernel} groups {groups}",
            _of("u1", 1, 32, *sides[rank]),
            stored=(weights,),
            group=groups,
            pads=[kernel // 2] * 2 * rank,
        )


def _products() -> Iterator[Case]:
    for m, k, n in ((1, 512, 512), (64, 512, 512), (256, 256, 256), (512, 64, 512)):
        name = f"{m}x{k}x{n}"
        yield _one("MatMul", f"f8 {name}", _of("f8", m, k), stored=(_of("f8", k, n),))
        yield _one("Gemm", f"transA {name}", floats(k, m), stored=(floats(k, n), floats(n)), transA=1)
        for kind in ("i8", "i4"):
            yield _one("MatMul", f"{kind} {name}", _of(kind, m, k), stored=(_of(kind, k, n),))
        for left, right in (("u1", "i1"), ("u1", "u1"), ("i1", "i1")):
            yield _one("MatMulInteger", f"{left} {right} {name}", _of(left, m, k), stored=(_of(right, k, n),))
        yield _one("MatMulInteger", f"fed {name}", _of("u1", m, k), _of("i1", k, n))
        yield _one("MatMul", f"fed {name}", floats(m, k), floats(k, n))
    for name, equation, *shapes in (
        ("heads", "bsnh,btnh->bnts", (1, 128, 8, 64), (1, 128, 8, 64)),
        ("weighted heads", "bnst,btnh->bsnh", (1, 8, 128, 128), (1, 128, 8, 64)),
        ("product", "ij,jk->ik", (256, 256), (256, 256)),
        ("batched", "bij,bjk->bik", (8, 128, 64), (8, 64, 128)),
        ("batched, transposed", "bij,bkj->bik", (8, 128, 64), (8, 128, 64)),
        ("pixels", "bchw,oc->bohw", (1, 64, 40, 40), (64, 64)),
        ("channels last", "bhwc,co->bhwo", (1, 40, 40, 64), (64, 64)),
        ("sum", "ijk->ik", (64, 64, 64)),
        ("total", "ij->", (512, 512)),
        ("transposed", "ij->ji", (512, 512)),
        ("permuted", "abcd->dbca", (16, 16, 32, 32)),
        ("diagonal", "bii->bi", (64, 64, 64)),
        ("outer", "i,j->ij", (512,), (512,)),
        ("elementwise", "ij,ij->ij", (512, 512), (512, 512)),
        ("inner", "bd,bd->b", (1024, 256), (1024, 256)),
        ("three", "ij,jk,kl->il", (128, 128), (128, 128), (128, 128)),
        ("relative", "bhwc,hkc->bhwk", (8, 14, 14, 64), (14, 14, 64)),
        ("groups", "bgij,bgjk->bgik", (2, 8, 64, 64), (2, 8, 64, 64)),
    ):
        yield _one("Einsum", name, *(floats(*shape) for shape in shapes), equation=equation)
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, hidden in ((1, 1, 128), (32, 1, 64), (32, 8, 128), (8, 1, 256)):
            for both in (1, 2):
                stored = (floats(both, gates * hidden, 64), floats(both, gates * hidden, hidden))
                yield _one(
                    op,
                    f"{steps} x {batch} x {hidden} x {both}",
                    floats(steps, batch, 64),
                    stored=stored,
                    hidden_size=hidden,
                    direction="bidirectional" if both == 2 else "forward",
                )
    yield _one("Attention", "23", *(floats(1, 8, 128, 64),) * 3, opset=23)
    yield _one("Attention", "23 causal", *(floats(1, 8, 128, 64),) * 3, opset=23, is_causal=1)
    yield _one("RotaryEmbedding", "23", floats(1, 8, 128, 64), floats(1, 128, 32), floats(1, 128, 32), opset=23)


def _quantized() -> Iterator[Case]:
    shape = (256, 512)
    for target in ("u1", "i1"):
        zero = np.array(3, _TYPES[target])
        yield _one("QuantizeLinear", f"{target}", floats(*shape), stored=(number(0.02), zero))
        yield _one("DequantizeLinear", f"{target}", _of(target, *shape), stored=(number(0.02), zero))
        for axis in (0, 1):
            size = shape[axis]
            scales, zeros = np.abs(floats(size)) + 0.1, np.zeros(size, _TYPES[target])
            yield _one(
                "QuantizeLinear", f"{target} axis {axis}", floats(*shape), stored=(scales, zeros), axis=axis
            )
            yield _one(
                "DequantizeLinear",
                f"{target} axis {axis}",
                _of(target, *shape),
                stored=(scales, zeros),
                axis=axis,
            )
            blocks = (8, 512) if axis == 0 else (256, 16)
            scales, zeros = np.abs(floats(*blocks)) + 0.1, np.zeros(blocks, _TYPES[target])
            for op, x in (("QuantizeLinear", floats(*shape)), ("DequantizeLinear", _of(target, *shape))):
                yield _one(
                    op, f"{target} blocks {axis}", x, stored=(scales, zeros), axis=axis, block_size=32, opset=21
                )
        image = (1, 64, 40, 40)
        scales, zeros = np.abs(floats(64)) + 0.1, np.zeros(64, _TYPES[target])
        yield _one(
            "DequantizeLinear", f"{target} channels", _of(target, *image), stored=(scales, zeros), axis=1
        )
        yield _one("QuantizeLinear", f"{target} channels", floats(*image), stored=(scales, zeros), axis=1)
    yield _one("DequantizeLinear", "i4", _of("i4", *shape), stored=(number(0.02),))
    for size in (1, 64, 1000):
        yield _one("DynamicQuantizeLinear", f"{size}", floats(size, 512), outputs=3)


def _contributed() -> Iterator[Case]:
    x, row = floats(256, 768), floats(768)
    deep = floats(2, 128, 768)
    for op in ("BiasGelu", "FastGelu"):
        yield _one(op, "bias", x, stored=(row,), domain=MICROSOFT)
    yield _one("QuickGelu", "", x, domain=MICROSOFT)
    yield _one("SkipLayerNormalization", "", deep, floats(2, 128, 768), stored=(row, row), domain=MICROSOFT)
    yield _one(
        "SkipSimplifiedLayerNormalization", "", deep, floats(2, 128, 768), stored=(row,), domain=MICROSOFT
    )
    scale, zero = number(0.02), np.array(128, np.uint8)
    a, b = _of("u1", 256, 768), _of("u1", 256, 768)
    two = (a, scale, zero, b, scale, zero, scale, zero)
    for op in ("QLinearAdd", "QLinearMul"):
        yield Case(f"{op} same", op, two, domain=MICROSOFT)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        yield Case(op, op, (a,), (scale, zero, scale, zero), domain=MICROSOFT)
    yield Case(
        "QLinearSoftmax",
        "QLinearSoftmax",
        (a,),
        (scale, zero, number(1 / 256), np.array(0, np.uint8)),
        attributes={"opset": 13, "axis": -1},
        domain=MICROSOFT,
    )
    yield Case(
        "QLinearConcat",
        "QLinearConcat",
        (scale, zero, a, scale, zero, b, scale, zero),
        attributes={"axis": 1},
        domain=MICROSOFT,
    )
    yield Case(
        "FusedMatMul transposed",
        "FusedMatMul",
        (floats(8, 64, 128), floats(8, 64, 128)),
        attributes={"transB": 1},
        domain=MICROSOFT,
    )
    yield Case(
        "MultiHeadAttention",
        "MultiHeadAttention",
        tuple(floats(1, 128, 512) for _ in range(3)),
        attributes={"num_heads": 8},
        domain=MICROSOFT,
    )
    yield Case("CDist", "CDist", (floats(200, 64), floats(300, 64)), domain=MICROSOFT)
    yield Case("Inverse", "Inverse", (floats(50, 16, 16),), domain=MICROSOFT)
    yield Case("Trilu ms", "Trilu", (floats(300, 300),), domain=MICROSOFT)


def _rare() -> Iterator[Case]:
    for length, axis, onesided in product((256, 400, 512), (1, 2), (0, 1)):
        shape = (20, length, 1) if axis == 1 else (4, 20, length, 1)
        yield _one(
            "DFT",
            f"{length} axis {axis} onesided {onesided}",
            floats(*shape),
            stored=(None, np.array(axis)),
            onesided=onesided,
        )
    yield _one("DFT", "complex", floats(20, 256, 2), stored=(None, np.array(1)))
    for length, hop in ((256, 128), (400, 160)):
        window = np.hanning(length).astype(np.float32)
        yield _one("STFT", f"{length}", floats(1, 16000, 1), stored=(np.array(hop), window))
    for size in (2, 4, 16, 64):
        yield _one("Det", f"{size}", floats(max(4, 4000 // size**2), size, size))
    yield Case(
        "MelWeightMatrix",
        "MelWeightMatrix",
        (np.array(80), np.array(512), np.array(16000), number(0.0), number(8000.0)),
    )
    for op in ("RandomNormalLike", "RandomUniformLike", "Bernoulli"):
        yield _one(op, "", np.abs(np.tanh(floats(256, 512))))
    yield _one("Multinomial", "", floats(64, 100), sample_size=10)


# Forms whose loop depends on opset, gaps, vectors, short runs, columns, and axes in the middle.
_OTHER_REDUCED = (
    ((8, 16, 40, 20), (1,)),
    ((8, 16, 40, 20), (0, 3)),
    ((8, 16, 40, 20), (1, 2)),
    ((4, 8, 6, 10, 50), (1, 3)),
    ((30000, 3), (1,)),
    ((50000, 3), (0,)),
)
_OTHER_ORDERS = (
    ((200, 200, 3), (2, 0, 1)),
    ((2, 4, 30, 30, 16), (0, 3, 1, 2, 4)),
    ((1, 64, 64, 48), (0, 3, 1, 2)),
    ((16, 64, 7, 7), (0, 2, 3, 1)),
    ((50, 60, 70), (1, 2, 0)),
    ((2, 40000), (1, 0)),
)
_OTHER_POOLS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 24, 56, 56), {"kernel_shape": [4, 4], "strides": [2, 2]}),
    ((1, 17, 55, 55), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ((2, 24, 56, 56), {"kernel_shape": [7, 7]}),
    ((2, 24, 3000), {"kernel_shape": [5], "dilations": [3]}),
    ((1, 8, 12, 28, 28), {"kernel_shape": [3, 3, 3], "strides": [3, 3, 3]}),
)
_OTHER_FILTERS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ("Conv", (1, 1, 16000), (16, 1, 80), {"strides": [16]}),
    ("Conv", (1, 32, 40, 40), (64, 1, 3, 3), {"group": 32, "pads": [1] * 4}),
    ("Conv", (1, 3, 128, 128), (96, 3, 4, 4), {"strides": [4, 4]}),
    ("Conv", (1, 32, 40, 40), (32, 1, 11, 11), {"group": 32, "pads": [5] * 4}),
    ("ConvTranspose", (1, 100, 1, 1), (100, 256, 4, 4), {}),
    ("ConvTranspose", (1, 32, 20, 20), (32, 1, 8, 8), {"group": 32, "strides": [4, 4]}),
)


def _others() -> Iterator[Case]:
    for op, (shape, axes) in product(("Sum", "Mean", "Max", "L2"), _OTHER_REDUCED):
        yield _one(f"Reduce{op}", f"{shape} {axes}", floats(*shape), stored=(whole(*axes),), keepdims=0)
    for kind, (shape, perm) in product(("f4", "f8", "u1"), _OTHER_ORDERS):
        yield _one("Transpose", f"{kind} {shape} {perm}", _of(kind, *shape), perm=perm)
    for op, (shape, attributes) in product(("MaxPool", "AveragePool"), _OTHER_POOLS):
        yield _one(op, f"{shape} {attributes['kernel_shape']}", floats(*shape), **attributes)
    yield _one("MaxPool", "f8", _of("f8", 1, 16, 56, 56), kernel_shape=[3, 3], strides=[2, 2])
    for op, source, filters, attributes in _OTHER_FILTERS:
        yield _one(op, f"{source} {filters}", floats(*source), stored=(floats(*filters),), **attributes)
    yield _one("Conv", "fed", floats(1, 32, 30, 30), floats(32, 32, 3, 3), pads=[1] * 4)
    for rows, length in ((300, 64), (1000, 256), (5000, 16)):
        yield _one("MatMul", f"{rows}x{length} by a vector", floats(rows, length), floats(length))
    for many, size in ((500, 8), (1000, 4), (100, 16)):
        yield _one("MatMul", f"{many} of {size}", floats(many, size, size), floats(many, size, size))
    for m, k, n in ((100, 100, 100), (1000, 32, 1000), (32, 4096, 64)):
        yield _one("MatMul", f"f8 fed {m}x{k}x{n}", _of("f8", m, k), _of("f8", k, n))
        yield _one("MatMulInteger", f"short {m}x{k}x{n}", _of("u1", m, k), stored=(_of("u1", k, n),))
    yield from _other_images()


def _other_images() -> Iterator[Case]:
    for mode in ("linear", "nearest"):
        volume, grid = floats(1, 4, 10, 20, 20), floats(1, 10, 20, 20, 3)
        yield _one("GridSample", f"3d {mode} reflection", volume, grid, mode=mode, padding_mode="reflection")
    for scale in (0.3, 0.6):
        scales = np.array([1, 1, scale, scale], np.float32)
        yield _one("Resize", f"cubic {scale}", floats(1, 8, 120, 120), stored=(None, scales), mode="cubic")
    doubled = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}
    scales = np.array([1, 1, 2, 2], np.float32)
    yield _one("Resize", "twice, ceil", floats(1, 3, 128, 128), stored=(None, scales), **doubled)
    for ratio, size in ((4, 14), (2, 7), (1, 28)):
        corners = np.sort(np.abs(floats(50, 2, 2)) * 20, axis=1).reshape(50, 4)
        bins: dict[str, Any] = {"output_height": size, "output_width": size, "sampling_ratio": ratio}
        yield _one("RoiAlign", f"{ratio} {size}", floats(1, 32, 60, 60), corners, below(1, 50), **bins)
    for axes in ((0, 1), (1,)):
        yield _one("MeanVarianceNormalization", f"rows {axes}", floats(300, 200), axes=axes)
    for kind in ("f4", "i8", "u1"):
        yield _one("Slice", f"{kind} thin", _of(kind, 5000, 20), stored=(whole(0), whole(3), whole(1)))
        yield _one("Expand", f"{kind} outer", _of(kind, 300, 1, 1), stored=(whole(300, 20, 10),))
    places = (np.arange(2 * 8 * 20 * 20) * 9).reshape(2, 8, 20, 20)
    yield _one("MaxUnpool", "3", floats(2, 8, 20, 20), places, kernel_shape=[3, 3], strides=[3, 3])
    yield _one("LpNormalization", "short", floats(4000, 24), axis=-1)
    yield _one("Einsum", "traced", floats(600, 600), equation="ii->i")
    yield _one("SoftmaxCrossEntropyLoss", "", floats(500, 60), below(60, 500), opset=13)
    yield _one("BitwiseOr", "u1", _of("u1", 300, 300), _of("u1", 300, 300), opset=18)
