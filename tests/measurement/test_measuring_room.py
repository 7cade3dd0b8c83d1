"""What a second session beside the first needs."""

import psutil
import pytest

from analyzer.measurement import on_cpu
from analyzer.measurement.machine_load import peak_resident_bytes, resident_bytes


@pytest.mark.parametrize(("share", "tight"), [(0.5, False), (1.0, True), (2.0, True)])
def test_a_second_session_is_not_made_beside_one_that_holds_what_is_left(
    monkeypatch: pytest.MonkeyPatch, share: float, tight: bool
) -> None:
    free = psutil.virtual_memory()._replace(available=10_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert on_cpu._is_tight(int(share * 10_000_000_000)) is tight


def test_what_is_resident_now_is_no_more_than_ever() -> None:
    assert 0 < resident_bytes() <= peak_resident_bytes() * 1.01
