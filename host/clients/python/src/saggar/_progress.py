"""A progress bar: tqdm's, in terminals and notebooks, or lines of text without tqdm."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

# Without tqdm, a line at most so often.
_LINE_SECONDS = 2.0


class Progress:
    """The progress of a task that counts steps or bytes. `total` is 0 if it is not known."""

    def __init__(self, title: str, total: int, unit: str = "it") -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._line = ""
        self._printed_at = 0.0
        self._bar: Any = None
        try:
            with warnings.catch_warnings():
                # Without ipywidgets, tqdm warns and draws its bar as text.
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm

                self._bar = tqdm(total=total or None, desc=title, unit=unit, unit_scale=unit == "B")
        except ImportError:
            pass

    def advance(self, count: int) -> None:
        self.show(self._done + count)

    def show(self, done: int, total: int = 0, note: str = "") -> None:
        """Shows how much is done, how much there is to do if that is known now, and a note."""
        self._total = total or self._total
        step, self._done = done - self._done, done
        if self._bar is not None:
            self._bar.total = self._total or None
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(step)
            return
        self._line = f"{self._title}: {done}/{self._total or '?'} {note}".rstrip()
        if time.monotonic() - self._printed_at >= _LINE_SECONDS:
            self._print()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._line:
            self._print()

    def _print(self) -> None:
        self._printed_at = time.monotonic()
        print(self._line, file=sys.stderr, flush=True)
        self._line = ""
