"""Further inputs made from one set stay within the values that the first was allowed to have."""

import numpy as np
import pytest

from analyzer.measurement.tensor_files import later_changed, varied


@pytest.mark.parametrize(
    "given",
    [
        np.array([[200, 450, 999], [300, 999, 200]], dtype=np.int64),
        np.array([[-128, 0, 127], [5, 127, -128]], dtype=np.int8),
        np.array([[0.25, 0.5, 0.3], [0.3, 0.4, 0.5]], dtype=np.float32),
    ],
    ids=["ids", "all of int8", "a part of the floats"],
)
def test_other_inputs_keep_the_range_of_the_given_ones(given: np.ndarray) -> None:
    low, high = given.min(), given.max()
    last_changed = later_changed({"x": given}, tokens=3)["x"]
    assert (last_changed[:, :-1] == given[:, :-1]).all()
    assert (last_changed[:, -1] != given[:, -1]).all()
    for other in (last_changed, varied({"x": given}, seed=1)["x"]):
        assert other.dtype == given.dtype
        assert low <= other.min() <= other.max() <= high


def test_a_mask_of_ones_becomes_zero_at_the_last_token() -> None:
    ones = np.ones((2, 4), dtype=np.int64)
    assert later_changed({"mask": ones}, tokens=4)["mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 0]]
