"""The job that a training runs in: parameters, metrics, checkpoints, publishing and output files."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .dataset import Batches
from .errors import Stopped, call
from .images import ImagePreprocessing
from .logged import Histogram, Values, column_values, image_layout
from .params import Params, T
from .tensor import Tensor
from .variables import Variables

try:
    from wit_world.imports import job as raw
except ImportError:  # A plugin that only predicts has no job.
    pass


class Job:
    """The job that a training runs in."""

    def __init__(self) -> None:
        self.params = Params.parse(raw.parameters())
        """All parameters."""

    def param(self, name: str, default: T) -> T:
        """Returns a parameter, which must have the type of its default."""
        return self.params.param(name, default)

    @property
    def seed(self) -> int:
        """The job's seed, from which all randomness should derive."""
        return raw.seed()

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return raw.attempt()

    @property
    def shards(self) -> int:
        """The number of equal shards of every batch."""
        return raw.shards()

    def variables(self) -> Variables:
        """Returns an empty namespace, whose random initial values depend on the job's seed."""
        return Variables.seeded(self.seed)

    def metric(self, step: int, name: str, value: float) -> None:
        """Records a value of a named series at a step."""
        raw.metric(step, name, float(value))

    def log_image(self, step: int, name: str, image: Tensor, layout: str = "hwc") -> None:
        """Records an image at a step, replacing one of the same name and step.

        `image` is `[height, width, channels]`, or with `layout="chw"` `[channels, height, width]`, with 1 channel, grey,
        or 3, RGB. Its elements are `uint8`, or `float32` from 0 to 1, where other numbers are clamped.
        """
        call(raw.log_image, step, name, image.raw, image_layout(layout))

    def log_table(self, step: int, name: str, columns: Mapping[str, Values]) -> None:
        """Records a table at a step, replacing one of the same name and step.

        The columns have names and one value for each row: all numbers, whole numbers, texts or truth values.
        """
        rows = [raw.TableColumn(column, column_values(values)) for column, values in columns.items()]
        call(raw.log_table, step, name, rows)

    def log_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """Records a histogram at a step, replacing one of the same name and step."""
        call(raw.log_histogram, step, name, list(histogram.edges), list(histogram.counts))

    def declare_image_input(self, name: str, preprocessing: ImagePreprocessing) -> None:
        """Declares the preprocessing of an image input, before the dataset's fields and batches are used.

        From then on fields of this name are `float32` in the declared size and layout, and published versions have the
        declaration: the input of their model has the same data type and shape, and clients send images.
        """
        call(raw.declare_image_input, name, preprocessing.raw())

    def progress(self, step: int, of: int) -> None:
        """Reports that `step` of `of` steps are done."""
        raw.progress(step, of)

    def resume(self, variables: Variables, batches: Sequence[Batches]) -> tuple[int, bytes] | None:
        """Restores the newest checkpoint. Returns its step and state, or `None` at the beginning of a training."""
        return call(raw.resume, variables.raw, [it.raw for it in batches])

    def boundary(self, step: int, variables: Variables, batches: Sequence[Batches], state: bytes) -> None:
        """Marks a step boundary, where the host saves checkpoints. Raises `Stopped` if the job is stopping."""
        if not call(raw.boundary, step, variables.raw, [it.raw for it in batches], state):
            raise Stopped("the training was stopped at a step boundary")

    def phase(self, name: str) -> None:
        """Starts a phase of the job, such as `post`, which can fail without undoing what was published."""
        call(raw.phase, name)

    def publish(self, model: str, variables: Variables, config: Mapping[str, Any] | None = None) -> int:
        """Publishes the variables as a new version of `model`, with `config` for `Model.__init__`.

        Returns the version's number.
        """
        return call(raw.publish, model, variables.raw, Params(config).dump())

    def open_model(self, model: str, version: int | None = None) -> tuple[int, Variables, Params]:
        """Opens a published version, the newest without a number: its number, variables and configuration."""
        opened = call(raw.open_model, model, version)
        return opened.version, Variables(opened.variables), Params.parse(opened.config)

    def secret(self, name: str) -> str:
        """Returns the value of a secret that was granted to the job."""
        return call(raw.secret, name)

    def write_output(self, path: str, data: bytes) -> None:
        """Stores a file with the job, replacing any file with that path."""
        call(raw.write_output, path, data)
