"""Completes words with a colon, such as `h200:2,mi355x`, in bash."""

from typing import ClassVar

from click.shell_completion import BashComplete


class BashCompletion(BashComplete):
    """Completion of bash that reads the typed line.

    Bash splits a line at colons too, and replaces only the text after the last colon.
    """

    source_template: ClassVar[str] = """\
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} type value response
    local word=${line##*[[:space:]]} words
    local kept=${word%%"${word##*[:=]}"}
    read -ra words <<< "$line"
    [[ -n $word ]] || words+=("")
    response=$(env COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) %(complete_var)s=bash_complete $1)
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$kept"}") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
