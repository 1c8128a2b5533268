"""The preprocessing of image inputs, which the host applies in training and in serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

try:
    from wit_world.imports import graphs, job as raw
except ImportError:  # A plugin that only predicts has no job.
    pass


@dataclass(frozen=True)
class ImagePreprocessing:
    """How images become an input: resized, converted to colours, normalized, and laid out.

    With `mean` and `scale`, one number for each channel, a pixel (0 to 255) becomes `(pixel - mean) * scale`. Without
    them, each image is standardized: `(pixel - mean) / max(std, 1 / sqrt(N))` over its N elements.
    """

    height: int
    width: int
    colors: str = "rgb"
    """`rgb` or `grey`."""
    mean: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    fit: str = "stretch"
    """`stretch`, or `crop`, which cuts off the edges of an image of other proportions."""
    layout: str = "nchw"
    """`nchw` or `nhwc`."""

    def raw(self) -> raw.ImagePreprocessing:
        """Returns the declaration as the host gets it."""
        if (self.mean is None) != (self.scale is None):
            raise ValueError("declare both `mean` and `scale`, or neither")
        normalization: Any = raw.ImageNormalization_PerImageStandardization()
        if self.mean is not None and self.scale is not None:
            numbers = raw.MeanAndScale(list(self.mean), list(self.scale))
            normalization = raw.ImageNormalization_MeanAndScale(numbers)
        return raw.ImagePreprocessing(
            self.height,
            self.width,
            _choice("fit", self.fit, raw.ImageFit),
            _choice("colors", self.colors, raw.ImageColors),
            normalization,
            _choice("layout", self.layout, graphs.InputOperandLayout),
        )


def _choice(what: str, name: str, choices: Any) -> Any:
    """Returns the member of an enum with this name."""
    known = {choice.name.lower(): choice for choice in choices}
    if name not in known:
        raise ValueError(f"the {what} of an image is one of {', '.join(known)}, not `{name}`")
    return known[name]
