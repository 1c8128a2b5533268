"""Losses, composed of differentiable operators. They compute in `float32` for any float input."""

from __future__ import annotations

from dataclasses import dataclass

from .operand import Operand
from .tensor import float32, int32, uint8


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy over the last axis. Shapes: `logits` `[..., classes]`, `labels` `[...]`. Result: a scalar."""

    label_smoothing: float = 0.0
    ignore_index: int | None = None

    def __call__(self, logits: Operand, labels: Operand) -> Operand:
        logits, labels = logits.to(float32), labels.to(int32)
        # A selection, not a product, because the logit of another class can be infinite.
        here = labels.one_hot(logits.shape[-1], uint8)
        chosen = here.where(logits, logits.scalar_like(0.0)).sum(-1)
        total = logits.logsumexp(-1)
        if self.label_smoothing == 0.0:
            cost = total - chosen
        else:
            spread = logits.mean(-1) * self.label_smoothing
            cost = (total - chosen * (1.0 - self.label_smoothing)) - spread
        return self._masked_mean(cost, labels)

    def accuracy(self, logits: Operand, labels: Operand) -> Operand:
        """The share of labels whose logit is the largest."""
        labels = labels.to(int32)
        return self._masked_mean(logits.argmax(-1).equal(labels).to(float32), labels)

    def _masked_mean(self, values: Operand, labels: Operand) -> Operand:
        if self.ignore_index is None:
            return values.mean()
        counted = labels.not_equal(self.ignore_index)
        total = counted.where(values, values.scalar_like(0.0)).sum()
        return total / counted.to(float32).sum().clamp(low=1.0)


def cross_entropy(
    logits: Operand, labels: Operand, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> Operand:
    """Cross-entropy over the last axis. Shapes: `logits` `[..., classes]`, `labels` `[...]`. Result: a scalar."""
    return CrossEntropy(label_smoothing, ignore_index)(logits, labels)


def accuracy(logits: Operand, labels: Operand) -> Operand:
    """The share of labels whose logit is the largest."""
    return CrossEntropy().accuracy(logits, labels)


def mse_loss(prediction: Operand, target: Operand) -> Operand:
    """The mean of the squared differences."""
    miss = prediction.to(float32) - target.to(float32)
    return (miss * miss).mean()


def binary_cross_entropy_with_logits(logits: Operand, targets: Operand) -> Operand:
    """The mean binary cross-entropy of targets between 0 and 1."""
    logits, targets = logits.to(float32), targets.to(float32)
    # Equal to ln(1 + e^x) - t x, which does not overflow for large logits.
    return (logits.softplus() - targets * logits).mean()
