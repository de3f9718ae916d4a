"""Histograms by the batch: one lock a bucket and batch, where `observe` takes two locks a value.

At ten thousand outcomes a second `observe` was a quarter of what the recorder did. This reaches into the client
library, whose version is pinned; a test holds it to what `observe` does.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from prometheus_client import Histogram


def observe_many(histogram: Histogram, values: Sequence[float]) -> None:
    """Observe `values` on a histogram that has its labels."""
    if not values:
        return
    bounds = histogram._upper_bounds  # noqa: SLF001
    histogram._sum.inc(sum(values))  # noqa: SLF001
    for index, count in Counter([bisect_left(bounds, value) for value in values]).items():
        histogram._buckets[index].inc(count)  # noqa: SLF001
