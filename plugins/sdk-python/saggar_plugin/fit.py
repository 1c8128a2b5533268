"""The training loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Sequence

from . import log
from .averages import averages_by_parameter, copy_to_parameters, update_averages
from .dataset import Batches, Dataset
from .graph import Executable, Graph, Inputs
from .job import Job
from .losses import accuracy
from .operand import Operand
from .optimizers import Optimizer, Update, clip_grad_norm, sum_of_squares
from .tensor import Descriptor, float32
from .training_run import ActiveFeed, HeldOutSplit, TrainingRun
from .variables import Variable, VariableKind, Variables, constant

_LOSS_SCALE_FIRST = 65536.0
_LOSS_SCALE_RANGE = (1.0 / 65536.0, 16_777_216.0)
_LOSS_SCALE_GROWTH_INTERVAL = 2000.0
_FLOAT32_MAX = 3.4028234663852886e38


class Objective:
    """The loss of a training step, which is minimized, and metrics that are reported: means over the batch."""

    def __init__(self, loss: Operand, **metrics: Operand) -> None:
        self.outputs = {"loss": loss, **metrics}

    @classmethod
    def classification(cls, logits: Operand, labels: Operand) -> Objective:
        """Cross-entropy and the metric `accuracy`. Shapes: `logits` `[batch, classes]`, `labels` `[batch]`."""
        return cls(logits.softmax_cross_entropy(labels), accuracy=accuracy(logits, labels))

    def build(self, graph: Graph) -> Executable:
        """Builds the graph with the loss and the metrics as outputs, `float32` scalars."""
        return graph.build({name: operand.to(float32).reshape() for name, operand in self.outputs.items()})


class Feed:
    """The input of a training: fields of a dataset in batches of the split `train`.

    The split `validation`, or `test` if there is no `validation`, is held out. Without a split `train`, the training
    uses the whole dataset and nothing is held out.
    """

    def __init__(self, dataset: Dataset, fields: Sequence[str], batch_size: int = 32) -> None:
        if batch_size < 1:
            raise ValueError(f"parameter `batch` must be an integer of at least 1, not {batch_size}")
        splits = dataset.splits
        self.dataset = dataset
        self.fields = [dataset.field(name) for name in fields]
        self.training = "train" if "train" in splits else None
        held_out = [split for split in ("validation", "test") if split in splits and self.training]
        self.held_out = held_out[0] if held_out else None
        items = dataset.count(self.training)
        if items == 0:
            raise ValueError("the dataset has no items to train on")
        self.batch_size = min(batch_size, items)

    @property
    def steps_per_epoch(self) -> int:
        """The number of full batches in the split that is trained on."""
        return self.dataset.count(self.training) // self.batch_size

    def inputs(self, graph: Graph, size: int) -> Inputs:
        """Returns an input of the graph for each field."""
        return graph.inputs([(it.name, it.item) for it in self.fields], size)

    def batches(self, split: str | None, shuffle_seed: int | None) -> Batches:
        """Returns the batches of a split."""
        names = [it.name for it in self.fields]
        return self.dataset.batches(names, self.batch_size, shuffle_seed, shuffle_seed is not None, split)


@dataclass
class Fit:
    """A training loop: minimizes an objective with an optimizer.

    It resumes, takes checkpoints, validates and reports automatically: `loss` and the objective's metrics every few
    steps, and after every epoch their means over it and over the held-out items. A training that was interrupted ends
    with the same result as one that was not.

    `objective` builds the loss from the inputs of a batch. It is called once for each graph.
    """

    job: Job
    variables: Variables
    optimizer: Optimizer
    objective: Callable[[Graph, Inputs], Objective]
    clip_grad_norm: float | None = None
    """Scales all gradients so that their total L2 norm is at most this."""
    gradient_accumulation_steps: int = 1
    """Batches whose gradients are averaged for each step of the optimizer."""
    mixed_precision: bool = False
    """Computes in `float16`, with a loss scale. The model must cast its inputs to `Graph.float_type`."""
    exponential_moving_average: float | None = None
    """The decay of the parameters' averages, which are validated and published."""
    early_stopping: int | None = None
    """Stops when the validation loss has reached no new minimum for this number of epochs."""
    log_histograms: bool = False
    """Logs a histogram of each parameter after every epoch, `weights/NAME`."""
    _names: list[str] = field(default_factory=list, repr=False)

    def epochs(self, feeds: Feed | Sequence[Feed], epochs: int) -> None:
        """Trains until `epochs` epochs are complete, including those before an interruption.

        Several feeds can have different shapes. An epoch passes once over all of them, in a shuffled order.
        """
        self.job.params.check()
        feeds = [feeds] if isinstance(feeds, Feed) else list(feeds)
        if not feeds:
            raise ValueError("the dataset has no items to train on")
        seed = self.job.seed
        active = [ActiveFeed(it.batches(it.training, seed), self._training_graph(it), it.steps_per_epoch) for it in feeds]
        held_out = [self._held_out(it, it.held_out) for it in feeds if it.held_out]
        if not held_out:
            log.warn("the dataset has no splits `train` and `validation` or `test`: validation is skipped")
        run = TrainingRun(
            self.job, self.variables, active, held_out, self._names, epochs, self.early_stopping, self.log_histograms
        )
        run.train()
        if self.exponential_moving_average is not None:
            copy_to_parameters(self.variables)

    def _held_out(self, feed: Feed, split: str) -> HeldOutSplit:
        items, size = feed.dataset.count(split), feed.batch_size
        full = self._evaluation_graph(feed, size) if items >= size else None
        rest = items % size
        last = (rest, self._evaluation_graph(feed, rest)) if rest else None
        return HeldOutSplit(lambda: feed.batches(split, None), size, full, last)

    def _evaluation_graph(self, feed: Feed, size: int) -> Executable:
        averaged = self.exponential_moving_average is not None
        graph = Graph(instead=averages_by_parameter(self.variables) if averaged else {})
        return self.objective(graph, feed.inputs(graph, size)).build(graph)

    def _training_graph(self, feed: Feed) -> Executable:
        graph = Graph(training=True, half=self.mixed_precision)
        shards = max(self.job.shards, 1)
        if feed.batch_size % shards:
            raise ValueError(f"a batch of {feed.batch_size} items cannot be divided into {shards} equal shards")
        objective = self.objective(graph, feed.inputs(graph, feed.batch_size // shards))
        loss = objective.outputs["loss"].to(float32)
        scale = _LossScaler(graph, self.variables) if self.mixed_precision else None
        updates = self._updates(graph, loss, scale)
        guard = None
        if scale is not None:
            guard = _are_finite(graph, updates)
            graph.set_statistics_guard(guard)
            scale.update(graph, guard)
            objective.outputs["scale"] = scale.value
        if self.gradient_accumulation_steps > 1:
            guard = self._accumulate(graph, updates, guard)
        if self.clip_grad_norm is not None:
            clip_grad_norm(updates, self.clip_grad_norm)
        graph.set_assignment_guard(guard)
        self.optimizer.step(graph, self.variables, updates)
        if self.exponential_moving_average is not None:
            update_averages(graph, self.variables, self.exponential_moving_average)
        graph.set_assignment_guard(None)
        self._names = list(objective.outputs)
        return objective.build(graph)

    def _updates(self, graph: Graph, loss: Operand, scale: _LossScaler | None) -> list[Update]:
        parameters = self.variables.parameters()
        values = [graph.stored(variable) for variable in parameters]
        if scale is None:
            gradients = graph.gradients(loss, values)
        else:
            inverse = scale.value.reciprocal()
            gradients = [gradient * inverse for gradient in graph.gradients(loss * scale.value, values)]
        return [Update(*it) for it in zip(parameters, values, gradients)]

    def _accumulate(self, graph: Graph, updates: list[Update], sound: Operand | None) -> Operand:
        """Adds the gradients to those of the previous batches, and replaces them by the mean.

        Returns 1 if enough batches were accumulated for an update, else 0.
        """
        def counted(before: Operand, after: Operand) -> Operand:
            return after if sound is None else sound.where(after, before)

        counter = self.variables.training("accumulated/batches", [])
        before = graph.stored(counter)
        count = counted(before, before + 1.0)
        enough = count >= float(self.gradient_accumulation_steps)
        zero = count.scalar_like(0.0)
        graph.assign(counter, enough.where(zero, count))
        for update in updates:
            total = self.variables.training(f"accumulated/{update.variable.name}", update.variable.shape)
            before = graph.stored(total)
            after = counted(before, before + update.gradient)
            graph.assign(total, enough.where(zero, after))
            update.gradient = after * (1.0 / self.gradient_accumulation_steps)
        return enough


def _are_finite(graph: Graph, updates: list[Update]) -> Operand:
    """Returns a `uint8` scalar: 1 if all gradients are finite, else 0."""
    total = sum_of_squares(updates)
    # This comparison is false for infinity and for NaN.
    return (graph.scalar(0.0) if total is None else total) <= _FLOAT32_MAX


class _LossScaler:
    """The loss scale of mixed precision. Source: Micikevicius et al., arXiv:1710.03740."""

    def __init__(self, graph: Graph, variables: Variables) -> None:
        scalar = Descriptor(float32, [])
        first = constant(_LOSS_SCALE_FIRST)
        self.variable: Variable = variables.get("mixed-precision/scale", scalar, first, VariableKind.TRAINING)
        self.good = variables.training("mixed-precision/good", [])
        self.value = graph.stored(self.variable)

    def update(self, graph: Graph, sound: Operand) -> None:
        """Halves the scale after a step whose gradients are not finite, doubles it after many that are."""
        good = graph.stored(self.good) + 1.0
        many = good >= _LOSS_SCALE_GROWTH_INTERVAL
        zero = good.scalar_like(0.0)
        grown = many.where(self.value * 2.0, self.value)
        following = sound.where(grown, self.value * 0.5)
        graph.assign(self.variable, following.clamp(*_LOSS_SCALE_RANGE))
        graph.assign(self.good, sound.where(many.where(zero, good), zero))
