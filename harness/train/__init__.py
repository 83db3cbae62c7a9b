"""From a configuration to a trained run: one job, a sweep of them, and going on with either."""


def __getattr__(name: str) -> object:
    """What a configuration that was written for 0.1.0 names here; nothing is imported before it is asked for."""
    if name != "NoteSweep":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = import_module("harness.train.sweep").followed
    return found
