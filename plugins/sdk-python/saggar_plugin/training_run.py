"""A running training: steps, step boundaries and ends of epochs."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from itertools import groupby
from typing import Callable, Sequence

from . import log
from .dataset import Batches
from .graph import Executable
from .job import Job
from .logged import Histogram
from .variables import Variables

# Small enough for a training to stop soon.
_STEPS_PER_BOUNDARY = 10
_STEPS_PER_LINE = 100
# Consecutive steps of one feed, which are shuffled as a unit, so that the device is busy between calls.
_CONSECUTIVE_STEPS = 4
_COLUMN_WIDTH_MIN = 9
_HOST_HEADS = "  elapsed_time    checkpoint"
# The host fills these columns, because a plugin has no clock and does not store checkpoints.
_HOST_COLUMNS = "     {seconds}  {checkpoint}"


@dataclass
class ActiveFeed:
    """A feed with its batches and its graph."""

    batches: Batches
    graph: Executable
    steps_per_epoch: int


@dataclass
class HeldOutSplit:
    """The held-out split of a feed, and the graphs that evaluate it."""

    open: Callable[[], Batches]
    size: int
    full: Executable | None
    last: tuple[int, Executable] | None

    def run(self, means: WeightedMeans, boundary: Callable[[], None]) -> None:
        """Adds the outputs of every item, each counted once."""
        batches = self.open()
        if self.full is not None:
            left = batches.full_batches
            while left > 0:
                wanted = min(left, _STEPS_PER_BOUNDARY)
                done, outputs = batches.run(self.full, wanted)
                means.add(done * self.size, outputs)
                left -= wanted
                boundary()
        if self.last is not None and (batch := batches.next()) is not None:
            size, graph = self.last
            means.add(size, {name: tensor.item() for name, tensor in graph.dispatch(batch).items()})


@dataclass
class WeightedMeans:
    """Means of named values, weighted by items or steps."""

    weight: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, weight: int, means: dict[str, float]) -> None:
        """Adds values that are means over `weight` items or steps."""
        self.weight += weight
        for name, mean in means.items():
            self.sums[name] = self.sums.get(name, 0.0) + mean * weight

    def finish(self) -> dict[str, float]:
        """Returns the means."""
        return {name: total / self.weight for name, total in self.sums.items()} if self.weight else {}


@dataclass
class TrainingPosition:
    """The position of a training: the state of a checkpoint that the host does not store already."""

    epoch: int = 0
    batch: int = 0
    reported: int = 0
    stale: int = 0
    lowest: float = math.inf
    steps: int = 0
    sums: list[float] = field(default_factory=list)

    def add(self, steps: int, means: dict[str, float]) -> None:
        """Counts `steps` whose outputs have these means."""
        self.steps += steps
        self.sums += [0.0] * (len(means) - len(self.sums))
        for index, mean in enumerate(means.values()):
            self.sums[index] += mean * steps

    def means(self, names: Sequence[str]) -> dict[str, float]:
        """Returns the means of the outputs over the epoch so far."""
        return {name: total / self.steps for name, total in zip(names, self.sums)}

    def finish_report(self, held_out: float | None) -> None:
        """Records that the epoch was reported, with this validation loss."""
        self.reported, self.steps, self.sums = self.epoch, 0, []
        if held_out is not None and held_out < self.lowest:
            self.lowest, self.stale = held_out, 0
        elif held_out is not None:
            self.stale += 1

    def to_bytes(self) -> bytes:
        """Returns the position as the state of a checkpoint, the same as that of the guest library for Rust."""
        counts = (self.epoch, self.batch, self.reported, self.stale)
        return struct.pack(f"<4QdQ{len(self.sums)}d", *counts, self.lowest, self.steps, *self.sums)

    @classmethod
    def from_bytes(cls, state: bytes) -> TrainingPosition:
        """Returns the position in the state of a checkpoint."""
        if len(state) < 48 or len(state) % 8:
            raise ValueError(f"the checkpoint's state ({len(state)} bytes) is not that of a training with `Fit`")
        epoch, batch, reported, stale, lowest, steps = struct.unpack_from("<4QdQ", state)
        sums = struct.unpack_from(f"<{len(state) // 8 - 6}d", state, 48)
        return cls(epoch, batch, reported, stale, lowest, steps, list(sums))


@dataclass
class TrainingRun:
    """A training in progress."""

    job: Job
    variables: Variables
    feeds: list[ActiveFeed]
    held_out: list[HeldOutSplit]
    names: list[str]
    epochs: int
    patience: int | None
    log_histograms: bool
    _position: TrainingPosition = field(default_factory=TrainingPosition)
    _table: list[str] | None = None

    def train(self) -> None:
        """Trains to the end."""
        resumed = self.job.resume(self.variables, self._batches)
        if resumed is not None:
            log.info(f"resuming from step {resumed[0]}")
            self._position = TrainingPosition.from_bytes(resumed[1])
        at = self._position
        order: list[int] = []
        while True:
            if at.reported < at.epoch:
                self._end_epoch()
            if at.epoch >= self.epochs or (self.patience is not None and at.stale >= max(self.patience, 1)):
                return
            if not order:
                order = steps_of_epoch([it.steps_per_epoch for it in self.feeds], self.job.seed, at.epoch)
            self._train_to_boundary(order)
            if at.batch == 0:
                order = []
            self._reach_boundary()

    @property
    def _batches(self) -> list[Batches]:
        return [it.batches for it in self.feeds]

    @property
    def _steps_per_epoch(self) -> int:
        return sum(it.steps_per_epoch for it in self.feeds)

    @property
    def _step(self) -> int:
        return self._position.epoch * self._steps_per_epoch + self._position.batch

    def _reach_boundary(self) -> None:
        self.job.boundary(self._step, self.variables, self._batches, self._position.to_bytes())

    def _train_to_boundary(self, order: list[int]) -> None:
        at = self._position
        to_line = _STEPS_PER_LINE - at.batch % _STEPS_PER_LINE
        wanted = min(_STEPS_PER_BOUNDARY, to_line, len(order) - at.batch)
        means = WeightedMeans()
        for lane, group in groupby(order[at.batch : at.batch + wanted]):
            feed, steps = self.feeds[lane], len(list(group))
            done, outputs = feed.batches.run(feed.graph, steps)
            at.add(done, outputs)
            at.batch += done
            means.add(done, outputs)
            if done < steps:
                break
        self._report(means.finish())
        if means.weight < wanted or at.batch >= len(order):
            # The host starts the next epoch when the batch after the last one is requested.
            for feed in self.feeds:
                while feed.batches.next() is not None:
                    pass
            at.epoch += 1
            at.batch = 0

    def _report(self, outputs: dict[str, float]) -> None:
        at, step = self._position, self._step
        for name, value in outputs.items():
            # By default, a loss that is not finite ends the attempt at the next step boundary.
            self.job.metric(step, name, value)
        self.job.progress(step, self.epochs * self._steps_per_epoch)
        if at.batch % _STEPS_PER_LINE == 0:
            means = ", ".join(f"{name} {value:.4f}" for name, value in at.means(self.names).items())
            place = f"epoch {at.epoch + 1}/{self.epochs}, batch {at.batch}/{self._steps_per_epoch}"
            log.info(f"{place}: {{samples/s}} samples/s, {means}")

    def _end_epoch(self) -> None:
        at, step = self._position, self._step
        found = WeightedMeans()
        for split in self.held_out:
            split.run(found, self._reach_boundary)
        means, held_out = at.means(self.names), found.finish()
        values = {f"validation/{name}": value for name, value in held_out.items()}
        for name, value in [*((f"epoch/{name}", value) for name, value in means.items()), *values.items()]:
            self.job.metric(step, name, value)
        if self.log_histograms:
            for parameter in self.variables.parameters():
                self.job.log_histogram(step, f"weights/{parameter.name}", Histogram.of(parameter))
        columns = {**means, **values}
        if self._table is None:
            self._table = list(columns)
            heads = "".join(f"  {name:>{_COLUMN_WIDTH_MIN}}" for name in columns)
            log.info(f"epoch{heads}{_HOST_HEADS}")
        row = "".join(f"  {value:>{max(len(name), _COLUMN_WIDTH_MIN)}.5f}" for name, value in columns.items())
        log.info(f"{at.epoch:>5}{row}{_HOST_COLUMNS}")
        at.finish_report(held_out.get("loss"))
        # A job that pauses for a value of the epoch pauses with the weights that have this value.
        self._reach_boundary()


def steps_of_epoch(steps: Sequence[int], seed: int, epoch: int) -> list[int]:
    """Returns the feed of each step of an epoch; feed `i` has `steps[i]` steps. Depends only on seed and epoch."""
    rows: list[tuple[int, int]] = []
    for feed, count in enumerate(steps):
        rows += [(feed, _CONSECUTIVE_STEPS)] * (count // _CONSECUTIVE_STEPS)
        if count % _CONSECUTIVE_STEPS:
            rows.append((feed, count % _CONSECUTIVE_STEPS))
    state = seed ^ (epoch * 0x9E3779B97F4A7C15 & _WORD)
    # Fisher-Yates shuffle. The modulo bias is below 2^-32 for any possible number of rows.
    for end in range(len(rows) - 1, 0, -1):
        state = (state + 0x9E3779B97F4A7C15) & _WORD
        other = _split_mix(state) % (end + 1)
        rows[end], rows[other] = rows[other], rows[end]
    return [feed for feed, count in rows for _ in range(count)]


_WORD = (1 << 64) - 1


def _split_mix(z: int) -> int:
    """SplitMix64. Source: Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _WORD
    return z ^ (z >> 31)
