"""The class names and the outputs of a classifier."""

from __future__ import annotations

from .dataset import Field
from .operand import Operand
from .predict import Port
from .tensor import float32, int32


class Classes(list[str]):
    """The names of a classifier's classes, a value for a configuration."""

    @classmethod
    def of(cls, field: Field, count: int) -> Classes:
        """Returns the classes of a dataset's field, or `count` numbers if it names none."""
        return cls(field.classes or [str(number) for number in range(count)])

    def ports(self) -> list[Port]:
        """Returns the outputs `label`, `probability` and `probabilities`."""
        return [
            Port("label", int32, [], semantics="class", classes=list(self)),
            Port("probability", float32, []),
            Port("probabilities", float32, [len(self)], semantics="probabilities", classes=list(self)),
        ]

    def outputs(self, logits: Operand) -> dict[str, Operand]:
        """Returns these outputs for logits `[batch, classes]`."""
        probabilities = logits.to(float32).softmax(1)
        return {
            "label": probabilities.argmax(1),
            "probability": probabilities.amax(1),
            "probabilities": probabilities,
        }
