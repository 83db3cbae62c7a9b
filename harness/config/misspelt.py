"""A name that is none: what it may have been meant for, in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from hydra.errors import MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

HYDRA_GROUPS = ("hydra/launcher", "hydra/sweeper")


def meant(name: str, known: Iterable[str]) -> str:
    """``did you mean mlp? there are cnn, mlp``; the question only where a known name is near."""
    names = sorted(known)
    question = near(name, names)
    return f"{f'{question} ' if question else ''}there are {', '.join(names)}" if names else "there are none"


def near(name: str, known: Iterable[str], prefix: str = "") -> str:
    """``did you mean mlp?``; nothing where no known name is near.

    Args:
        prefix: Of every known name, where it is told.
    """
    found = difflib.get_close_matches(name, sorted(set(known)), n=2)
    return f"did you mean {' or '.join(prefix + one for one in found)}?" if found else ""


def explain(error: BaseException, conf: Path) -> str | None:
    """What an override has got wrong that Hydra could not compose; None where it is no name.

    Args:
        conf: The folder of the configuration's groups.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return f"{group}={option}: there is no such option; {meant(option, error.options)}"
    cause = error.__cause__
    if not isinstance(cause, ConfigAttributeError | ConfigKeyError) or not isinstance(cause.parent_node, DictConfig):
        return None
    key, section = str(cause.key), str(cause.full_key).rpartition(".")[0]
    known = set(map(str, cause.parent_node))
    if section:
        adds = f" (+{cause.full_key}=... adds one)" if "_target_" in known else ""
        return f"{cause.full_key}: {section} has no such key{adds}; {meant(key, known - {'_target_'})}"
    groups = {path.name for path in conf.iterdir() if path.is_dir()}
    return f"{key}: there is no such group or key; {meant(key, known | groups | set(HYDRA_GROUPS) - {'hydra'})}"
