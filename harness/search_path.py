"""Where modules are looked for, in this process and in those that it starts.

One rule: the user's folder, in which the command was given, stands at the end, behind the standard library and all that
is installed, so that no file or folder in it takes the place of what others import. Where ``PYTHONPATH`` names the
folder, that is the user's word and holds.

``python -m`` puts the folder at the head before a line of ours is run. So this module imports nothing that such a
process has not loaded by then.
"""

import os
import sys

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder that holds the package."""
SAFE = "PYTHONSAFEPATH"
OURS = "harness"
"""The value of :data:`SAFE` by which it is known to be set here; Python takes any."""


def leave_the_head() -> None:
    """Move the user's folder from the head of the path, where Python itself has put it, to its end."""
    sys.path[:] = _in_order()


def join_users_folder() -> None:
    """Let modules of the user's own be found, as a ``_target_`` names them; for every process that builds some."""
    leave_the_head()
    leave_the_shelter()
    here = users_folder()
    if here is not None and here not in sys.path:
        sys.path.append(here)


def users_folder() -> str | None:
    """The folder in which the command was given; None where somebody has removed it."""
    try:
        return os.getcwd()
    except OSError:
        return None


def command(main: str, *arguments: str) -> list[str]:
    """The command of a Python that calls ``main``, as ``harness.publish.worker:main``, with ``arguments``.

    It finds the same modules as this process, by the same rule, and this very harness, whatever else has its name.
    """
    module, _, function = main.partition(":")
    code = (
        f"import sys; sys.path[:] = [{HOME!r}]; import harness; sys.path[:] = {_in_order()!r}; "
        f"from {module} import {function}; {function}(*sys.argv[1:])"
    )
    return [sys.executable, "-P", "-c", code, *arguments]


class Sheltered:
    """While entered, a Python that a library starts, as multiprocessing and joblib do, has no folder at its head.

    They give it this process's path, but only when it has imported a good deal. Once it is up, it is its to call
    :func:`leave_the_shelter`.
    """

    def __enter__(self) -> None:
        self._before = os.environ.get(SAFE)
        if not self._before:
            os.environ[SAFE] = OURS

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            os.environ.pop(SAFE, None)
        else:
            os.environ[SAFE] = self._before


def leave_the_shelter() -> None:
    """In a process that was started in one: what the user's code starts from here keeps to Python's own ways."""
    if os.environ.get(SAFE) == OURS:
        del os.environ[SAFE]


def _in_order() -> list[str]:
    """This process's path, with what Python has put before its own library at the end: the folder of -m and -c, and a
    script's."""
    library = os.path.dirname(os.__file__)
    own = sys.path.index(library) if library in sys.path else len(sys.path)
    here = users_folder()
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = {here, *(how(os.path.dirname(script)) for how in (os.path.abspath, os.path.realpath) if script)}
    named = {os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    kept: list[str] = []
    moved: list[str] = []
    for place, entry in enumerate(sys.path[:own]):
        folder = entry or here
        if folder is None:
            continue
        by_python = folder in folders and (folder not in named or folder in sys.path[place + 1 : own])
        (moved if by_python else kept).append(folder)
    path = [*kept, *sys.path[own:]]
    return [*path, *(folder for folder in dict.fromkeys(moved) if folder not in path)]
