"""A call: a task with its params and its options, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Returning(Protocol[R_co]):
    """A task or a handle: it knows the type of what its jobs return."""

    def _decoded(self, text: str) -> R_co:
        """Return a stored result, JSON text, as the value that the function returned."""


class Call(Generic[R_co]):
    """A task with its params and options: a value. Nothing is written until it is enqueued."""

    __slots__ = ("actor", "options", "params", "task")

    def __init__(self, task: Any, params: dict[str, Any], options: Mapping[str, Any], actor: Any = None) -> None:
        """Made by `Task.bind`."""
        self.task = task
        self.params = params
        self.options = options
        self.actor = actor

    @property
    def name(self) -> str:
        """The template that its job is made from."""
        return str(self.task.name)

    def __repr__(self) -> str:
        return f"{self.name}.bind({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"
