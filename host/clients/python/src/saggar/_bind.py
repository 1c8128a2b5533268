"""Operations as methods. Each is written once, as a method that returns a generator; these descriptors make it a method
of the same parameters that blocks on a `Blocking` object, and that is a coroutine on an `Asynchronous` one."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ._protocol import EventStream, Operation

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound="_Method")


class Blocking:
    """An object whose methods block."""


class Asynchronous:
    """An object whose methods are coroutines, or asynchronous iterators."""


class _Method:
    """A descriptor that runs an operation with the transport of its object, and that has the operation's
    documentation and signature."""

    _runner: str

    def __init__(self, operation: Any) -> None:
        self._operation = operation
        self.__doc__ = operation.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @cached_property
    def __signature__(self) -> inspect.Signature:
        """The parameters without `self`, and the result: `Operation[Model]` becomes `Model`."""
        signature = inspect.signature(self._operation)
        result = re.sub(r"^Operation\[(.*)\]$", r"\1", str(signature.return_annotation))
        result = result.replace("EventStream[", "Iterator[")
        return signature.replace(parameters=list(signature.parameters.values())[1:], return_annotation=result)

    def _bound(self, instance: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(instance._transport, self._runner)(self._operation(instance, *args, **kwargs))

        call.__name__, call.__doc__ = self._name, self.__doc__
        call.__qualname__ = f"{type(instance).__name__}.{self._name}"
        # For `help` and for notebooks.
        setattr(call, "__signature__", self.__signature__)
        return call


class operation(_Method, Generic[P, T]):
    """A method that returns the result of an operation."""

    _runner = "run"

    def __init__(self, operation: Callable[Concatenate[Any, P], Operation[T]]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self: D, instance: None, owner: type) -> D: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Asynchronous, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self._bound(instance)


class streaming(_Method, Generic[P, T]):
    """A method that returns an iterator over a stream."""

    _runner = "iterate"

    def __init__(self, operation: Callable[Concatenate[Any, P], Operation[EventStream[T]]]) -> None:
        super().__init__(operation)

    @overload
    def __get__(self: D, instance: None, owner: type) -> D: ...
    @overload
    def __get__(self, instance: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: Asynchronous, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self._bound(instance)
