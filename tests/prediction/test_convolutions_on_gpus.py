"""What cuDNN and cuBLAS launch for convolutions, biases and unaligned products, beside a recorded H100."""

from dataclasses import replace

import prediction_graphs as made
import pytest

from analyzer import prediction
from analyzer.costs import count
from analyzer.devices import catalogue
from analyzer.graph import Graph
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.prediction import workload

H100 = catalogue.device("h100-80gb-sxm")


def times(one: Graph, precision: str, device: str = "h100-80gb-sxm") -> prediction.GroupTimes:
    """What ONNX Runtime executes of a graph."""
    groups = predicted_groups(one, "cuda", place(one))
    return prediction.predict_arrays(
        workload(one, count(one), groups), catalogue.device(device), precision=precision
    )


def kernels(one: Graph, precision: str, device: str = "h100-80gb-sxm") -> float:
    """Seconds of its kernels, without floors and gaps."""
    found = times(one, precision, device)
    assert found.overheads is not None
    return float((found.value - found.overheads.launch_s).sum())


def biased(one: Graph) -> Graph:
    """A convolution with a bias."""
    (conv,) = one.nodes
    (result,) = conv.present_outputs
    bias = made.tensor("b", *(result.shape or ())[1:2], constant=True)
    return made.graph(replace(conv, inputs=(*conv.inputs, bias)))


@pytest.mark.parametrize(
    ("sizes", "size", "precision", "microseconds"),
    [
        ((32, 64, 64, 224), 3, "fp16", 1053.9),
        ((32, 512, 512, 28), 3, "fp16", 269.1),
        ((32, 64, 256, 56), 1, "fp16", 119.0),
        ((32, 256, 64, 56), 1, "fp16", 47.0),
        ((32, 128, 128, 112), 3, "tf32", 797.7),
        ((32, 64, 64, 56), 3, "tf32", 110.7),
        ((32, 256, 1024, 14), 1, "tf32", 54.3),
        ((1, 128, 128, 112), 3, "tf32", 34.7),
    ],
)
def test_convolutions_take_about_what_an_h100_took(
    sizes: tuple[int, int, int, int], size: int, precision: str, microseconds: float
) -> None:
    """All kernels of one convolution with its bias, by CUPTI (tests/data/gpu/h100-families-convolution)."""
    one = biased(made.convolution(*sizes, kernel=size))
    assert kernels(one, precision) == pytest.approx(microseconds * 1e-6, rel=0.35)


def test_a_bias_is_a_kernel_that_reads_and_writes_the_whole_result() -> None:
    plain = made.convolution(32, 64, 256, 56, kernel=1)
    for device in ("t4", "a100-40gb-pcie", "h100-80gb-sxm"):
        added = kernels(biased(plain), "tf32", device) - kernels(plain, "tf32", device)
        bytes_moved = 2 * 4 * 32 * 256 * 56 * 56
        assert added > bytes_moved / catalogue.device(device).bandwidth_bytes_per_s
    (group,) = predicted_groups(biased(plain), "cuda", place(biased(plain)))
    assert group.kernels == 2


def test_a_normalization_that_a_convolution_takes_in_becomes_its_bias() -> None:
    plain = made.convolution(32, 64, 256, 56)
    (conv,) = plain.nodes
    result = conv.outputs[0]
    assert result is not None
    parameters = [made.tensor(name, 256, constant=True) for name in ("s", "o", "m", "v")]
    normed = made.node("BatchNormalization", [result, *parameters], made.tensor("z", 32, 256, 56, 56), 1)
    whole = made.graph(conv, normed)
    (group,) = predicted_groups(whole, "cuda", place(whole))
    assert (group.op_type, group.kernels) == ("Conv", 2)
    assert kernels(whole, "fp16") == pytest.approx(kernels(biased(plain), "fp16"), rel=0.01)


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
def test_images_are_turned_to_channels_last_unless_the_filter_is_one_position(precision: str) -> None:
    one, three = (made.convolution(32, 64, 64, 112, kernel=size) for size in (1, 3))
    width = 2 if precision == "fp16" else 4
    image = width * 32 * 64 * 112 * 112
    # Image and result are read and written once more each.
    assert kernels(three, precision) - kernels(one, precision) > 4 * image / H100.bandwidth_bytes_per_s
    product = made.product(32 * 112 * 112, 64, 64)
    assert kernels(one, precision) == pytest.approx(kernels(product, precision), rel=0.5)


@pytest.mark.parametrize(("kernel", "turned"), [(3, True), (1, False)])
def test_what_turning_takes_is_told_beside_the_time(kernel: int, turned: bool) -> None:
    """Image and result, read and written; not where cores without a layout of their own compute in fp32."""
    one = made.convolution(32, 64, 64, 112, kernel=kernel)
    half, single = (times(one, precision).overheads for precision in ("fp16", "fp32"))
    assert half is not None
    assert single is not None
    least = 4 * 2 * 32 * 64 * 112 * 112 / H100.bandwidth_bytes_per_s
    assert (half.layout_s.sum() > least) == turned
    assert half.layout_s.sum() < kernels(one, "fp16")
    assert single.layout_s.sum() == 0


@pytest.mark.parametrize(("op", "domain"), [("NhwcConv", "com.microsoft"), ("Conv", "com.ms.internal.nhwc")])
def test_images_that_lie_channels_last_are_not_turned(op: str, domain: str) -> None:
    """Of the same sizes: what is left out is what turning takes at least."""
    first = made.convolution(32, 128, 256, 56)
    (conv,) = first.nodes
    turned = [made.tensor("x", 32, 56, 56, 128), made.tensor("w", 256, 3, 3, 128, constant=True)]
    if op == "Conv":  # its filters stay as they are
        turned[1] = made.tensor("w", 256, 128, 3, 3, constant=True)
    result = made.tensor("y", 32, 56, 56, 256)
    last = replace(conv, op_type=op, domain=domain, inputs=tuple(turned), outputs=(result,), version=1)
    second = replace(made.graph(last), opsets={"ai.onnx": 20, domain: 1})
    group = replace(made.alone(second)[0], provider="cuda")
    taken = []
    for one in (first, second):
        found = prediction.predict_arrays(made.work(one, groups=(group,)), H100, precision="fp16")
        taken.append(float(found.value[0]))
    turning = 4 * 32 * (128 + 256) * 56 * 56 / H100.bandwidth_bytes_per_s
    assert turning < taken[0] - taken[1] < 2 * turning


@pytest.mark.parametrize(
    ("precision", "rows", "depth", "columns", "microseconds"),
    [
        ("fp16", 512, 768, 50257, 313.6),
        ("fp16", 64, 768, 50257, 111.1),
        ("fp16", 2048, 1023, 1024, 40.0),
        ("fp16", 2048, 1026, 1024, 23.9),
        ("tf32", 512, 768, 50257, 329.0),
        ("tf32", 2048, 1026, 1024, 49.9),
    ],
)
def test_products_whose_rows_are_not_aligned_take_what_an_h100_took(
    precision: str, rows: int, depth: int, columns: int, microseconds: float
) -> None:
    """Kernels by CUPTI, the same record: 2.4 to 5 times as long as with one column or row of the depth more."""
    odd = kernels(made.product(rows, columns, depth), precision)
    assert odd == pytest.approx(microseconds * 1e-6, rel=0.5)
    columns, depth = (-(-size // 8) * 8 for size in (columns, depth))
    assert odd > 1.5 * kernels(made.product(rows, columns, depth), precision)


def test_one_row_reads_its_matrix_however_it_lies() -> None:
    odd, even = (kernels(made.product(1, columns, 768), "fp16") for columns in (50257, 50264))
    assert odd == pytest.approx(even, rel=0.02)


def test_an_unaligned_product_is_less_sure() -> None:
    found = []
    for columns in (50257, 50264):
        estimate = times(made.product(512, columns, 768), "fp16")
        found.append(float(estimate.high[0] / estimate.low[0]))
    assert found[0] > 1.5 * found[1]
