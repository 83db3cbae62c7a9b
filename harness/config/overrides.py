"""Hydra's override grammar: what is read of it before Hydra composes, and what is written in it to be pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness import console

MULTIRUN = ("-m", "--multirun")
"""Hydra's flags of a sweep."""


def parsed(text: str) -> Override | None:
    """The argument as Hydra reads it; None for a flag, and for what its grammar does not take."""
    if text.startswith("-"):
        return None
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException:
        return None


def key(text: str) -> str | None:
    """The key that an argument sets, adds or deletes; None for a flag.

    A value may lie outside the grammar, as a path that a shell has completed, and has a key all the same.
    """
    if (override := parsed(text)) is not None:
        return str(override.get_key_element()).lstrip("+~")
    name, equals, _ = text.partition("=")
    return name.lstrip("+~") if equals and not text.startswith("-") else None


def varies(text: str) -> bool:
    """Whether a sweep's jobs differ in what an argument sets."""
    return (override := parsed(text)) is not None and override.is_sweep_override()


def value(text: str) -> str | None:
    """The value of ``key=value`` as Hydra takes it, a null or an empty one as None.

    One that Hydra's grammar does not take is taken as it stands: a path has letters and signs that it lacks.
    """
    raw = text.partition("=")[2]
    try:
        found = OverridesParser.create().parse_override(f"value={raw}").value()
        if isinstance(found, QuotedString):
            found = found.text
        if isinstance(found, str):
            found = OmegaConf.create({"value": found})["value"]
    except (HydraException, OmegaConfBaseException):
        return raw
    # A number is one no more once it is read, as 1.50, and several values are a path with a comma.
    return found or None if found is None or isinstance(found, str) else raw


def path(text: str) -> str | None:
    """The path that ``key=path`` names: as it stands where there is such a path, as completed by a shell."""
    raw = text.partition("=")[2]
    return raw if raw and Path(raw).exists() else value(text)


def assign(name: str, text: object) -> str:
    """``name=text`` such that Hydra takes every character of ``text`` for itself."""
    plain = str(text)
    override = parsed(f"{name}={plain}")
    simple = None if override is None else override.value()
    if simple == plain and isinstance(simple, str) and "${" not in plain:
        return f"{name}={plain}"
    # What looks like an interpolation is none.
    escaped = re.sub(r"(\\*)\$\{", lambda match: f"{match[1]}{match[1]}\\${{", plain)
    return f"{name}={QuotedString(escaped, Quote.double).with_quotes()}"


def resume_command(run: Path) -> str:
    """The command that goes on with a run, as one pastes it into a shell here, whatever its path is made of."""
    return console.command(f"train {shlex.quote(assign('resume', console.path(run)))}")


def sweep_command(sweep: str, logdir: Path, *more: str) -> str:
    """The same of a sweep, by its id; the logdir is named unless it lies here, where sweeps are looked for."""
    arguments = [assign("resume", sweep)]
    if logdir.absolute().parent != Path.cwd():
        arguments.append(assign("logdir", console.path(logdir)))
    return console.command(f"train -m {shlex.join([*arguments, *more])}")
