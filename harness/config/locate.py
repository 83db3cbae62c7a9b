"""What a ``_target_`` names, whatever it was called when somebody wrote it down; or where it was looked for in vain."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from harness.config.misspelt import near
from harness.search_path import users_folder

MOVED = {
    "harness.schedulers": "harness.train.schedulers",
    "harness.strategy": "harness.distributed.strategy",
    "harness.tasks": "harness.train.tasks",
}
"""Modules of 0.1.0 that a configuration could name, and where they are now."""
MODELS = "models"
"""What ``harness.models`` was in 0.1.0; most projects have one of their own."""


class NotFoundError(LookupError):
    """There is no such name: where it was looked for, and what it may have been meant for."""


def current(name: str) -> str:
    """The name under which this release has what ``name`` means.

    A name in ``models`` is ours where nothing else has it: an old configuration's, in a project with a ``models`` too.
    """
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    if name.partition(".")[0] == MODELS and not _is_anothers(name):
        return f"harness.{name}"
    return name


def locate(name: str) -> Any:
    """The object of this name, imported; whatever a module raises in its import passes through.

    Raises:
        NotFoundError: where there is none.
    """
    first, *rest = name.split(".")
    if not all(part.isidentifier() for part in (first, *rest)):
        raise NotFoundError("this is no name of a module and what it holds, as my_package.MyClass")
    found: Any = _imported(first)
    if found is None:
        raise NotFoundError(_no_such_module(first, rest))
    path = first
    for part in rest:
        inner = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        elif not isinstance(found, ModuleType) or (module := _imported(inner)) is None:
            raise NotFoundError(_no_such_member(found, path, part))
        else:
            found = module
        path = inner
    return found


def blamed(error: BaseException) -> str:
    """The line of a user's file in which an import has failed, in brackets; empty where there is none."""
    others = (os.path.dirname(__file__), os.path.dirname(importlib.__file__))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.isfile(frame.filename) and os.path.dirname(frame.filename) not in others
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _imported(name: str) -> ModuleType | None:
    """The module of this name; None where there is none."""
    try:
        with _past_our_link(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # One that it imports itself, and that is not there, is another matter.
        if error.name == name:
            return None
        raise


@contextmanager
def _past_our_link(name: str) -> Iterator[None]:
    """While entered, the ``models`` of a checkout of ours is not in the way of the user's, which is behind it."""
    before = list(sys.path)
    if name == MODELS:
        sys.path[:] = [entry for entry in before if not _is_checkout(entry)]
    try:
        yield
    finally:
        sys.path[:] = before


def _is_checkout(entry: str) -> bool:
    link = os.path.join(entry, MODELS)
    return os.path.islink(link) and os.path.realpath(link).endswith(os.path.join("harness", MODELS))


def _is_anothers(name: str) -> bool:
    try:
        if _imported(MODELS) is None:
            return False
        locate(name)
    except NotFoundError:
        try:
            locate(f"harness.{name}")
        except NotFoundError:
            return True
        return False
    except Exception:  # theirs raises in its import, and that is what there is to say
        return True
    return True


def _no_such_module(first: str, rest: list[str]) -> str:
    here = users_folder()
    mine = [module.name for module in iter_modules([here])] if here is not None and rest else []
    models = importlib.import_module("harness.models").__all__
    question = near(first, mine) or near((rest or [first])[-1], models, "harness.models.")
    installed = sysconfig.get_path("purelib")
    return f"looked for {first} in {here} and in what is installed ({installed}), and there is none" + _said(question)


def _no_such_member(holder: Any, path: str, part: str) -> str:
    if not isinstance(holder, ModuleType):
        return f"{path} has no {part}" + _near_one(part, dir(holder))
    folders = list(getattr(holder, "__path__", []))
    there = getattr(holder, "__file__", None) or " and ".join(folders) or path
    known = [*vars(holder), *(module.name for module in iter_modules(folders))]
    return f"looked in {there}, which has no {part}" + _hidden(path, there) + _near_one(part, known)


def _near_one(part: str, known: Iterable[str]) -> str:
    return _said(near(part, (name for name in known if not name.startswith("_"))))


def _said(question: str) -> str:
    return f"; {question}" if question else ""


def _hidden(path: str, there: str) -> str:
    """What of the name the user's folder has too, where another one comes before it."""
    here = users_folder()
    if "." in path or here is None or os.path.dirname(there) == here or os.path.dirname(os.path.dirname(there)) == here:
        return ""
    spec = PathFinder.find_spec(path, [here])
    own = next(iter(spec.submodule_search_locations or ()), spec.origin) if spec is not None else None
    return f", and which comes before {own}" if own is not None else ""
