"""The pacer: starts of a process keep the limit that its grants keep."""

from hypothesis import given
from hypothesis import strategies as st

from app.services.deliver.pacer import SHARE, Pacer


@given(limit=st.integers(1, 60), gaps=st.lists(st.floats(0, 0.2), max_size=300))
def test_no_sliding_second_holds_more_starts_than_its_share(limit: int, gaps: list[float]) -> None:
    """However the grants bunch. Fails when a start is let go less than a second after the one too many."""
    pacer, now, starts = Pacer(limit), 0.0, list[float]()
    for gap in gaps:
        now += gap
        while wait := pacer.hold_seconds(now):
            now += wait
        starts.append(now)
    most = max(1, int(limit * SHARE))
    assert all(late - early >= 1.0 - 1e-9 for early, late in zip(starts, starts[most:], strict=False))


def test_even_starts_wait_for_nothing() -> None:
    """A flow below the limit is not slowed, and without a limit nothing is."""
    paced, free = Pacer(100), Pacer(0)
    assert {paced.hold_seconds(number / 90) for number in range(500)} == {0.0}
    assert {free.hold_seconds(0.0) for _ in range(500)} == {0.0}
