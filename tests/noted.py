"""A model with an argument that changes nothing."""

from __future__ import annotations

from typing import Any

from harness.models import MLP


class Net(MLP):
    """An MLP with a name, as of an account."""

    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__(**arguments)
