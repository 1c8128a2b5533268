"""Datasets: mounted into a job, or created by a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, Sequence

from .errors import call
from .graph import Executable
from .tensor import Descriptor, Tensor, tensors_by_name, uint8, unpadded

try:
    from wit_world.imports import datasets as raw
except ImportError:  # A plugin that only predicts has no datasets.
    pass

_TEXTS_PER_READ = 4096


@dataclass
class Field:
    """One column of a dataset: a tensor for every item, and the names of the classes if it is a class."""

    name: str
    item: Descriptor
    classes: list[str] = field(default_factory=list)


@dataclass
class Column:
    """A column of a dataset that a training creates: all items, concatenated, as little-endian elements."""

    name: str
    item: Descriptor
    data: bytes


class Dataset:
    """A dataset version that is mounted into the job, or a dataset that the training created."""

    def __init__(self, handle: raw.Dataset) -> None:
        self.raw = handle

    @classmethod
    def open(cls, mount: str = "/data") -> Dataset:
        """Opens the dataset that is mounted at `mount`."""
        return cls(call(raw.Dataset.open, mount))

    @classmethod
    def from_columns(cls, columns: Sequence[Column], splits: Sequence[tuple[str, int]]) -> Dataset:
        """Creates a dataset in the host's memory from data that the training computes.

        `splits` are names with numbers of items, which follow each other in order and cover all items.
        """
        made = [raw.Column(raw.Field(it.name, it.item, []), it.data) for it in columns]
        return cls(call(raw.Dataset.from_columns, made, list(splits)))

    @property
    def fields(self) -> dict[str, Field]:
        """The columns by name."""
        return {it.name: Field(it.name, it.item, it.classes) for it in self.raw.fields()}

    def field(self, name: str) -> Field:
        """Returns a column."""
        fields = self.fields
        if name not in fields:
            raise KeyError(f"no field `{name}`; available: {', '.join(fields) or 'none'}")
        return fields[name]

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        return self.raw.splits()

    def count(self, split: str | None = None) -> int:
        """Returns the number of items in a split, or in the whole dataset."""
        return call(self.raw.len, split)

    def batches(
        self,
        fields: Sequence[str],
        size: int,
        shuffle_seed: int | None = None,
        drop_last: bool = False,
        split: str | None = None,
    ) -> Batches:
        """Returns an iterator over batches of these fields, in stored order without a `shuffle_seed`."""
        options = raw.BatchOptions(size, shuffle_seed, drop_last, split)
        return Batches(call(self.raw.batches, list(fields), options))

    def texts(self, field: str, split: str | None = None) -> list[str]:
        """Returns the items of a text field, `uint8[n]` padded with zeros."""
        item = self.field(field).item
        if item.data_type != uint8 or len(item.shape) != 1:
            raise ValueError(f"the field `{field}` is no text field, uint8[n]")
        width = max(item.shape[0], 1)
        found: list[str] = []
        for batch in self.batches([field], _TEXTS_PER_READ, split=split):
            data = batch[field].read()
            found += (unpadded(data[start : start + width]) for start in range(0, len(data), width))
        return found


class Batches:
    """An iterator over the batches of an epoch; the next iteration begins the next epoch.

    Its position is part of a checkpoint.
    """

    def __init__(self, handle: raw.Batches) -> None:
        self.raw = handle

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        while (batch := self.next()) is not None:
            yield batch

    def next(self) -> dict[str, Tensor] | None:
        """Returns the next batch, or `None` at the end of an epoch; the next epoch starts after that."""
        batch = call(self.raw.next)
        return None if batch is None else tensors_by_name(batch)

    def run(self, graph: Executable, steps: int) -> tuple[int, dict[str, float]]:
        """Dispatches `graph` up to `steps` times, each time with the next full batch, without a call in between.

        Returns the number of dispatches, which is less at the end of an epoch, and the mean of each output, which must
        have one element.
        """
        done = call(self.raw.run, graph.raw, steps)
        return done.steps, {name: tensor.item() for name, tensor in tensors_by_name(done.outputs).items()}

    @property
    def full_batches(self) -> int:
        """The number of full batches in an epoch."""
        return self.raw.full_batches()

    @property
    def position(self) -> tuple[int, int]:
        """The epoch, from 0, and the index in it of the next item."""
        return self.raw.position()
