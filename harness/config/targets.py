"""Objects from ``_target_``: checked against the target's own signature, completed with what the job knows."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from hydra.utils import instantiate

from harness.config.locate import NotFoundError, blamed, current, locate
from harness.config.misspelt import meant
from harness.errors import UsageError

_PLAIN = (int, float, str, bool, type(None))
_RESERVED = {"_target_", "_args_", "_convert_", "_recursive_", "_partial_"}


def problems(where: str, node: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    """What keeps ``node`` from being built: a target that does not import, arguments it does not take.

    Args:
        where: The node's place in the configuration, for the messages.
        node: ``{_target_: ..., argument: value}``.
        known: Names of arguments that :func:`build` will fill in.
    """
    target = node.get("_target_")
    if not isinstance(target, str) or target == "???":
        yield f"{where}._target_ is missing: name what to build, as {where}._target_=my_package.MyClass"
        return
    try:
        factory = locate(current(target))
    except NotFoundError as error:
        yield f"{where}._target_={target}: {error}"
        return
    except Exception as error:  # a module of the user's own may raise anything
        yield f"{where}._target_={target} cannot be imported: {type(error).__name__}: {error}{blamed(error)}"
        return
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError) as error:
        yield f"{where}._target_={target} cannot be called: {error}"
        return

    parameters = signature.parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    hints = _hints(factory)
    for name, value in node.items():
        if name in _RESERVED:
            continue
        if value == "???":
            yield f"{where}.{name} is missing: {target} needs it"
        elif name not in parameters and not takes_any:
            yield f"{where}.{name}: {target} does not take it; {meant(name, set(parameters) - set(known) - {'self'})}"
        elif isinstance(value, Mapping) and "_target_" in value:
            yield from problems(f"{where}.{name}", value, known)
        elif not (value is None and name in known) and name in hints and _is_plain(hints[name]):
            try:
                msgspec.convert(value, hints[name])
            except msgspec.ValidationError as error:
                yield f"{where}.{name}={value}: {error}"


def build(where: str, node: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """What ``node`` describes. An argument that is null, or missing and required, comes from ``known``.

    Raises:
        UsageError: where an argument is still missing, or the target itself refuses the values.
    """
    target = node["_target_"]
    factory = locate(current(target))
    parameters = inspect.signature(factory).parameters
    filled = {
        name: value
        for name, value in known.items()
        if (name in node and node[name] is None)
        or (name not in node and name in parameters and parameters[name].default is inspect.Parameter.empty)
    }
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and (name not in node or (node[name] is None and not _takes_none(_hints(factory).get(name))))
        and name not in filled
    ]
    if missing:
        told = ", ".join(f"{k}={v}" for k, v in known.items() if isinstance(v, int | str | tuple)) or "nothing"
        raise UsageError(
            f"{where}: {target} needs {', '.join(missing)}, and nothing here tells it (known: {told}); "
            f"give {where}.{missing[0]}=..., or choose a {where} that fits"
        )
    try:
        return instantiate({**_renamed(node), "_partial_": True, "_convert_": "all"})(**filled)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {target} refuses its arguments: {error}") from error


def _renamed(node: Any) -> Any:
    """``node`` with every target in it, at any depth, by the name that it has in this release."""
    if isinstance(node, Mapping):
        return {
            key: current(value) if key == "_target_" and isinstance(value, str) else _renamed(value)
            for key, value in node.items()
        }
    if isinstance(node, list | tuple):
        return [_renamed(value) for value in node]
    return node


def _hints(factory: Any) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
        return {name: _without_tensor(hint) for name, hint in hints.items()}
    except (NameError, TypeError, AttributeError):
        return {}


def _is_plain(hint: Any) -> bool:
    """Whether a configuration file can hold every value of the type, so that a mismatch is a mistake."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType, list, tuple, Sequence):
        return all(argument is Ellipsis or _is_plain(argument) for argument in typing.get_args(hint))
    return origin is typing.Literal or hint in _PLAIN


def _without_tensor(hint: Any) -> Any:
    """A union's members that a configuration file can hold: torch's ``lr: float | Tensor`` is a float there."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[tuple(a for a in typing.get_args(hint) if getattr(a, "__name__", "") != "Tensor")]  # noqa: UP007
    return hint


def _takes_none(hint: Any) -> bool:
    return hint is None or type(None) in typing.get_args(hint)
