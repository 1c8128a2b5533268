"""Log lines for users. `print` writes to the same log, with the level `info`, and standard error with `warn`."""

from wit_world.imports import logging as raw


def debug(line: str) -> None:
    """Writes a line with the level `debug`."""
    raw.log(raw.Level.DEBUG, line)


def info(line: str) -> None:
    """Writes a line with the level `info`."""
    raw.log(raw.Level.INFO, line)


def warn(line: str) -> None:
    """Writes a line with the level `warn`."""
    raw.log(raw.Level.WARN, line)


def error(line: str) -> None:
    """Writes a line with the level `error`."""
    raw.log(raw.Level.ERROR, line)
