"""Tab completion of ``harness``: its commands, and behind ``train`` what Hydra offers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import UsageError

_BASH = """\
_harness_complete() {
    local choices
    if [[ ${COMP_WORDS[1]} == train && $COMP_CWORD -gt 1 ]]; then
        # Hydra drops the program's name from the line, and here the program has two.
        choices=$(COMP_LINE="${COMP_LINE#* }" harness train -sc query=bash 2>/dev/null)
    else
        choices="$(harness commands 2>/dev/null)"
    fi
    COMPREPLY=($(compgen -W "$choices" -- "${COMP_WORDS[COMP_CWORD]}"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _harness_complete harness
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def script(arguments: Sequence[str]) -> str | None:
    """What ``-sc install=SHELL`` among ``arguments`` asks for; None where nothing does.

    Hydra's own script takes a program's name for one word.

    Raises:
        UsageError: for another shell than bash or zsh.
    """
    if not {"-sc", "--shell-completion"} & set(arguments):
        return None
    for argument in arguments:
        action, _, shell = argument.partition("=")
        if action == "uninstall":
            return "complete -r harness; unset -f _harness_complete"
        if action == "install":
            if shell not in ("bash", "zsh"):
                raise UsageError(f"-sc {argument}: there is tab completion for bash and zsh")
            return (_ZSH if shell == "zsh" else "") + _BASH
    return None
