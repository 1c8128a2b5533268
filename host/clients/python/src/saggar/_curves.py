"""The metric series of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._tensors import Array


class Curves(Mapping[str, Array]):
    """Metric series by name, each an array `float64[n, 2]` of steps and values, by rising step. Values that are
    infinite or NaN are NaN."""

    def __init__(self, points: Mapping[str, Sequence[tuple[int, float | None]]]) -> None:
        self._series = {
            name: np.array([(step, np.nan if value is None else value) for step, value in pairs], float).reshape(-1, 2)
            for name, pairs in points.items()
        }

    def __getitem__(self, name: str) -> Array:
        return self._series[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        return "Curves(" + ", ".join(f"{name}: {len(points)} points" for name, points in self._series.items()) + ")"

    def to_frame(self) -> Any:
        """Returns a pandas DataFrame: the index is the step, a column for each series; NaN where a series has no point.
        Errors: `ImportError` without pandas."""
        import pandas

        columns = {
            name: pandas.Series(points[:, 1], index=points[:, 0].astype(np.int64))
            for name, points in self._series.items()
        }
        return pandas.DataFrame(columns).rename_axis("step")

    def plot(self, *names: str, ax: Any = None, logy: bool = False) -> Any:
        """Draws all series, or those of these names, and returns matplotlib's axes. Errors: `ImportError` without
        matplotlib; `KeyError`."""
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        for name in names or tuple(self._series):
            ax.plot(self._series[name][:, 0], self._series[name][:, 1], label=name)
        ax.set_xlabel("step")
        if logy:
            ax.set_yscale("log")
        ax.legend()
        return ax
