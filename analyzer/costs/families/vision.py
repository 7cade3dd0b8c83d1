"""Counting resampling, regions of interest and detection."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2, prod

from analyzer.costs.cost import Cost, cost, dims, elements, out, reads, value
from analyzer.costs.families.per_element import CONTRIB, NCHWC, NHWC
from analyzer.costs.families.products import product
from analyzer.costs.registry import rule
from analyzer.graph import Node

_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
_IOU = 13
"""FLOPs of an overlap: 4 minima and maxima, 2 differences, 2 clamps, product, 2 sums, quotient, comparison."""
_SORTED = "n log2(n) comparisons sort, and every element is taken to be different"


@rule("Resize", "Upsample")
def resize(node: Node) -> Cost:
    """2 * outputs * taps^d for linear (2 taps) and cubic (4) over the d axes that change; 0 for nearest."""
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    taps = _TAPS[str(node.attributes.get("mode", "nearest"))]
    changed = sum(1 for one, two in zip(before, after, strict=True) if one != two)
    return cost(node, flops=2 * prod(after) * taps**changed if taps > 1 and changed else 0)


@rule("Upsample", domain=NCHWC)
def nchwc_upsample(node: Node) -> Cost:
    """8 * outputs for linear, 0 for nearest."""
    # Blocks hold images, and NchwcUpsample scales both their axes: Resize's 2 * taps^d with 2 taps and d = 2.
    return cost(node, flops=8 * out(node) if node.attributes.get("mode") == "linear" else 0)


@rule("GridSample")
@rule("GridSample", domain=CONTRIB)
@rule("GridSample", domain=NHWC)
def grid_sample(node: Node) -> Cost:
    """2 * outputs * taps^d, d spatial axes, taps 2 for linear and 4 for cubic, 0 for nearest.

    2 * grid to scale it.
    """
    taps = _TAPS[str(node.attributes.get("mode", "bilinear"))]
    axes = len(dims(node.inputs[0])) - 2
    each = 2 * taps**axes if taps > 1 else 0
    return cost(node, flops=each * out(node) + 2 * elements(node.inputs[1]))


@rule("AffineGrid")
def affine_grid(node: Node) -> Cost:
    """2 * outputs * (d + 1): each position times a matrix of d by d + 1."""
    return product(node, out(node) * dims(node.inputs[0])[-1])


@rule("RoiAlign", depends=True)
def roi_align(node: Node) -> Cost:
    """Outputs * ratio^2 * 8 (four taps, product and sum each) and ratio^2 to pool; ratio is sampling_ratio.

    Where it is 0 it depends on the boxes: 2 is assumed.
    """
    ratio = node.attributes.get("sampling_ratio", 0)
    note = "" if ratio else "sampling_ratio depends on the boxes: 2 by 2 samples a bin are assumed"
    samples = (ratio or 2) ** 2
    return cost(node, flops=out(node) * samples * 9, basis="modelled" if note else "exact", note=note)


@rule("MaxRoiPool", assumes="the boxes tile the feature map: each of its elements is compared once a box")
def max_roi_pool(node: Node) -> Cost:
    """Boxes * channels * height * width comparisons, each box at most the whole map."""
    boxes, (_, channels, *space) = dims(node.inputs[1])[0], dims(node.inputs[0])
    return cost(node, flops=boxes * channels * prod(space))


@rule("CropAndResize", domain=CONTRIB)
def crop_and_resize(node: Node) -> Cost:
    """8 * outputs for bilinear (four taps, product and sum each), 0 for nearest."""
    return cost(node, flops=0 if node.attributes.get("mode") == "nearest" else 8 * out(node))


@reads("RoiAlign", "MaxRoiPool")
@reads("CropAndResize", domain=CONTRIB)
def _at_most_samples(node: Node) -> Mapping[int, int]:
    """Return the map is read where it is sampled, at most whole."""
    data = node.inputs[0]
    width = (data.dtype.bits or 0) if data is not None else 0
    # Four neighbours a sample; where sampling_ratio is 0 the boxes decide, and 2 is assumed as in the FLOPs.
    samples = 4 * max(node.attributes.get("sampling_ratio", 0), 2) ** 2 if node.op_type == "RoiAlign" else 4
    if node.op_type == "MaxRoiPool":
        return {0: elements(data) * width // 8}
    return {0: min(elements(data), samples * out(node)) * width // 8}


@rule("NonMaxSuppression", assumes="every box passes the score threshold and as many are selected as may be")
def non_max_suppression(node: Node) -> Cost:
    """Batch * classes * (n * log2(n) to sort, kept * n overlaps of 13); nothing where none may be kept."""
    # Scores, 1, is (batch, classes, boxes); max_output_boxes_per_class, 2, is 0 where it is left out.
    batch, classes, boxes = dims(node.inputs[1])
    limit = value(node.input(2))
    selected = min(int(limit[0]), boxes) if limit else (0 if node.input(2) is None else boxes)
    each = boxes * ceil(log2(max(boxes, 2))) + selected * boxes * _IOU
    # A result is (batch, class, box), three int64.
    written = 3 * 8 * batch * classes * selected
    read = sum(tensor.nbytes or 0 for tensor in node.present_inputs)
    return Cost(flops=batch * classes * each if selected else 0, bytes_read=read, bytes_written=written)


@rule("NonZero", assumes="every element is taken to be non-zero, for the bytes written")
def non_zero(node: Node) -> Cost:
    """1 * inputs comparisons; writes rank indices of 8 bytes for each element that is not zero."""
    data = node.inputs[0]
    count = elements(data)
    written = 8 * count * max(len(dims(data)), 1)
    return Cost(flops=count, bytes_read=data.nbytes if data is not None else None, bytes_written=written)


@rule("Unique", assumes=_SORTED)
@rule("Unique", domain=CONTRIB, assumes=_SORTED)
def unique(node: Node) -> Cost:
    """About n * log2(n) comparisons."""
    data = node.inputs[0]
    count = elements(data)
    size = data.nbytes if data is not None else None
    written = None if size is None else size + 8 * count * sum(1 for _ in list(node.present_outputs)[1:])
    return Cost(flops=count * ceil(log2(max(count, 2))), bytes_read=size, bytes_written=written)


@rule("Compress", assumes="every element is taken to be kept")
def compress(node: Node) -> Cost:
    """0 FLOPs; reads the condition and what is kept, writes that."""
    data, condition = node.inputs[0], node.inputs[1]
    size = data.nbytes if data is not None else None
    flags = condition.nbytes if condition is not None else None
    read = None if size is None or flags is None else size + flags
    return Cost(bytes_read=read, bytes_written=size)


@rule("ImageDecoder", assumes="about 20 operations a sample decode an image")
def image_decoder(node: Node) -> Cost:
    """20 * outputs; reads the compressed bytes, writes the image."""
    return cost(node, flops=20 * out(node))
