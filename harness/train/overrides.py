"""Hydra's override grammar: what is read of it before Hydra composes, and what is written in it."""

from __future__ import annotations

import re
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

MULTIRUN = ("-m", "--multirun")
"""Hydra's flags of a sweep."""


def key(text: str) -> str | None:
    """The key that an argument sets, adds or deletes; None for a flag."""
    name, equals, _ = text.partition("=")
    if text.startswith("-") or not (equals or text.startswith("~")):
        return None
    return name.lstrip("+~")


def value(text: str) -> str | None:
    """The value of ``key=value`` as Hydra takes it, a null or an empty one as None.

    One that Hydra's grammar does not take is taken as it stands: a path has letters and signs that it lacks.
    """
    raw = text.partition("=")[2]
    try:
        parsed = OverridesParser.create().parse_override(f"value={raw}").value()
        if isinstance(parsed, QuotedString):
            parsed = parsed.text
        if isinstance(parsed, str):
            parsed = OmegaConf.create({"value": parsed})["value"]
    except (HydraException, OmegaConfBaseException):
        return raw
    # A number is one no more once it is read, as 1.50, and several values are a path with a comma.
    return parsed or None if parsed is None or isinstance(parsed, str) else raw


def path(text: str) -> str | None:
    """The path that ``key=path`` names: as it stands where there is such a path, as completed by a shell."""
    raw = text.partition("=")[2]
    return raw if raw and Path(raw).exists() else value(text)


def assign(name: str, text: object) -> str:
    """``name=text`` such that Hydra takes every character of ``text`` for itself."""
    plain = str(text)
    try:
        simple = OverridesParser.create().parse_override(f"{name}={plain}").value()
    except HydraException:
        simple = None
    if simple == plain and isinstance(simple, str) and "${" not in plain:
        return f"{name}={plain}"
    # What looks like an interpolation is none.
    escaped = re.sub(r"(\\*)\$\{", lambda match: f"{match[1]}{match[1]}\\${{", plain)
    return f"{name}={QuotedString(escaped, Quote.double).with_quotes()}"
