"""Images, tables and histograms that a training logs by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, Sequence

from .tensor import Tensor, unpack
from .variables import Variable

try:
    from wit_world.imports import job as raw
except ImportError:  # A plugin that only predicts has no job.
    pass

_BINS_MAX = 512
"""The number of bins that the host accepts at most."""


@dataclass(frozen=True)
class Histogram:
    """The number of values in each of a series of bins."""

    edges: Sequence[float]
    """The edges of the bins, rising: one more than there are bins."""
    counts: Sequence[int]
    """The number of values in each bin."""

    @classmethod
    def of(cls, values: Iterable[float] | Tensor | Variable, bins: int = 64) -> Histogram:
        """Counts numbers, or the elements of a tensor or a variable, in bins of equal width.

        The bins are from the lowest to the highest value. Values that are not finite are left out. If all values are
        equal, they are in the middle of the histogram, and without values it is empty.
        """
        if isinstance(values, Tensor):
            values = values.tolist()
        elif isinstance(values, Variable):
            values = unpack(values.descriptor.data_type, values.read())
        numbers = [float(value) for value in values if math.isfinite(value)]
        low, high = _range(numbers)
        bins = min(max(bins, 1), _BINS_MAX)
        counts = [0] * bins
        for number in numbers:
            counts[min(int((number - low) / (high - low) * bins), bins - 1)] += 1
        return cls([low + (high - low) * (edge / bins) for edge in range(bins + 1)], counts)


def _range(numbers: Sequence[float]) -> tuple[float, float]:
    """Returns the range of a histogram of these numbers, which is never empty."""
    low, high = (min(numbers), max(numbers)) if numbers else (0.5, 0.5)
    if low < high:
        return low, high
    # Wide enough that the edges of 512 bins differ.
    half = max(abs(low) * 1e-6, 0.5)
    return low - half, low + half


Values = Sequence[float] | Sequence[int] | Sequence[str] | Sequence[bool]
"""The values of a column of a table: numbers, whole numbers, texts or truth values."""


def column_values(values: Values) -> raw.ColumnValues:
    """Returns the values of a column with the type that all of them have."""
    if all(isinstance(value, bool) for value in values):
        return raw.ColumnValues_Booleans([bool(value) for value in values])
    if all(isinstance(value, str) for value in values):
        return raw.ColumnValues_Texts([str(value) for value in values])
    if all(isinstance(value, int) for value in values):
        return raw.ColumnValues_Integers([int(value) for value in values])
    return raw.ColumnValues_Numbers([float(value) for value in values])


def image_layout(layout: str) -> raw.ImageLayout:
    """Returns the order of the axes of an image, `hwc` or `chw`."""
    layouts = {"hwc": raw.ImageLayout.HWC, "chw": raw.ImageLayout.CHW}
    if layout not in layouts:
        raise ValueError(f"the layout of an image is `hwc` or `chw`, not `{layout}`")
    return layouts[layout]
