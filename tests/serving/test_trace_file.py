"""A recorded trace: what is read of a file, and what is refused of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzer.errors import UsageError
from analyzer.serving.arrivals import Trace, mean_rate_per_s, read_trace
from analyzer.serving.queue import ServiceCurve, make_queue


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "0\n0.5\n0.5\n2\n",
        "seconds,path\n0,/a\n0.5,/b\n0.5,/c\n2,/d\n",
        "\n\nseconds\n\n0\n0.5\n0.5\n\n2",
        "\ufeff0\r\n0.5\r\n0.5\r\n2\r\n",
        " 0 , x\n 5e-1 , x\n.5,x\n2.0,x\n",
    ],
    ids=["plain", "columns and a header", "empty lines", "of a spreadsheet", "spaces"],
)
def test_the_first_column_is_read_whatever_stands_around_it(tmp_path: Path, text: str) -> None:
    assert read_trace(written(tmp_path, text)).tolist() == [0, 0.5, 0.5, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the trace has no request"),
        ("seconds\n", "the trace has no request"),
        ("0.5\n", "the trace has one request"),
        ("1\n1\n1\n", "all requests come at the same time"),
        ("0\n2\n1\n", "request 3, at 1 s, is before the one above it"),
        ("0\n1\nabc\n3\n", "line 3 begins with 'abc', which is no time"),
        ("seconds\nseconds\n1\n", "line 2 begins with 'seconds'"),
        ("-1\n0\n1\n", "line 1 begins with '-1'"),
        ("0\nnan\n1\n", "line 2 begins with 'nan'"),
        ("0\n1\ninf\n", "line 3 begins with 'inf'"),
        ("0;a\n1;b\n", "line 2 begins with '1;b'"),
        (bytes(range(256)), "cannot be read"),
        ("0\n" + "1" * 200_000 + "\n", "cannot be read"),
    ],
)
def test_what_is_no_trace_is_one_error_that_names_file_and_place(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=problem) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"--arrivals {path}")
    assert caught.value.hint


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_trace(tmp_path / name)


def test_a_traces_rate_is_that_between_its_first_and_its_last_request() -> None:
    # Seconds since some epoch: five requests, four gaps, two seconds.
    assert mean_rate_per_s(1.7e9 + np.array([0, 0.1, 0.2, 1.9, 2.0])) == pytest.approx(2.0)


def test_instances_get_all_requests_of_a_trace_between_them_each_its_share() -> None:
    queue = make_queue(ServiceCurve(points=((1, 1.0),)))
    arrivals_s = np.sort(np.random.default_rng(0).uniform(0, 1000, 8000))
    arrivals_s[0] = 0.0
    recorded = mean_rate_per_s(arrivals_s)
    # Twice as fast as it was recorded, and dealt out to four.
    trace = Trace(arrivals_s=arrivals_s, whole_rate_per_s=2 * recorded)

    shares = trace.streams(queue, recorded / 2, lanes=4, requests=8000, left_out=0, seed=0)

    every = np.sort(np.concatenate([share.arrivals for share in shares]))
    assert every == pytest.approx(arrivals_s / 2)
    for share in shares:
        # 2000 of 8000, with the spread of a draw: three times sqrt(8000 / 4 * 3 / 4).
        assert len(share.arrivals) == pytest.approx(2000, abs=116)


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_of_a_long_trace_parts_are_looked_at_that_lie_evenly_in_it(share: float) -> None:
    queue = make_queue(ServiceCurve(points=((1, 1.0),)))
    # Twice as many requests a second in the second half.
    arrivals_s = np.concatenate((np.arange(0, 100_000, 2.0), np.arange(100_000, 200_000, 1.0)))
    trace = Trace(arrivals_s=arrivals_s, whole_rate_per_s=mean_rate_per_s(arrivals_s))

    parts = trace.streams(queue, share * trace.whole_rate_per_s, lanes=6, requests=500, left_out=100, seed=0)

    assert len(parts) == 6
    gaps = []
    for part in parts:
        assert part.arrivals[0] == 0
        assert part.counted_from == 100
        assert len(part.arrivals) <= 100 + 4 * 500
        gaps.append(float(np.diff(part.arrivals).mean()) * share)
    # 50,000 of 150,000 requests are two seconds apart: two of six parts.
    assert gaps == pytest.approx([2, 2, 1, 1, 1, 1], rel=0.1)


@pytest.mark.parametrize(("delay_s", "counted"), [(0.0, 11), (2.5, 8), (10.0, 1), (99.0, 1)])
def test_requests_that_wait_beyond_the_traces_end_do_not_count(delay_s: float, counted: int) -> None:
    queue = make_queue(ServiceCurve(points=((1, 1.0), (4, 2.0))), max_batch=4, max_delay_s=delay_s)
    trace = Trace(arrivals_s=np.arange(11.0), whole_rate_per_s=1.0)  # the last comes at 10 s
    (whole,) = trace.streams(queue, 1.0, lanes=1, requests=100, left_out=0, seed=0)
    assert (whole.counted_from, whole.counted_to) == (0, counted)
