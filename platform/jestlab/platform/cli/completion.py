"""`jestlab completion`: the script by which a shell completes verbs, options, studies, experiments and runs.

The script calls `jestlab` with the line up to the cursor in the environment; `completing` answers.
"""

from __future__ import annotations

import click

from jestlab.platform.cli.output import print_or_write

_BASH = """\
_jestlab_completion() {
    local reply
    COMPREPLY=()
    while IFS= read -r reply; do
        case $reply in
            //files) compopt -o default ;;
            //folders) compopt -o dirnames ;;
            *) COMPREPLY+=("$reply") ;;
        esac
    done < <(_JESTLAB_COMPLETE=bash _JESTLAB_LINE="${COMP_LINE:0:COMP_POINT}" "$1" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; fi
}
complete -o nosort -F _jestlab_completion jestlab
"""

_ZSH = """\
#compdef jestlab
_jestlab_completion() {
    local reply line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    local -a whole begun
    while IFS= read -r reply; do
        case $reply in
            //files) _files ;;
            //folders) _files -/ ;;
            */) begun+=("$reply") ;;
            *) whole+=("$reply") ;;
        esac
    done < <(_JESTLAB_COMPLETE=zsh _JESTLAB_LINE="$line" "${words[1]}" 2>/dev/null)
    (( $#begun )) && compadd -S '' -a begun
    (( $#whole )) && compadd -a whole
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _jestlab_completion "$@"
else
    compdef _jestlab_completion jestlab
fi
"""

_FISH = """\
function __jestlab_completion
    set -l line (commandline -cp | string collect)
    for reply in (env _JESTLAB_COMPLETE=fish _JESTLAB_LINE=$line jestlab 2>/dev/null)
        switch $reply
            case //files
                __fish_complete_path (commandline -ct)
            case //folders
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $reply
        end
    end
end
complete --no-files --command jestlab --arguments '(__jestlab_completion)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""Shell → its script."""


@click.command(
    epilog="""\b
bash: add to ~/.bashrc     eval "$(jestlab completion bash)"
zsh:  add to ~/.zshrc      eval "$(jestlab completion zsh)"
fish: run once             jestlab completion fish >
                             ~/.config/fish/completions/jestlab.fish

\b
Examples:
  jestlab completion bash
"""
)
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
def completion_command(shell: str) -> None:
    """Print the script that completes verbs, options, studies, experiments and runs in SHELL."""
    print_or_write(None, SCRIPTS[shell])
