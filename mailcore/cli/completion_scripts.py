"""The completion scripts for bash and zsh, without their tables (``completion``)."""

from __future__ import annotations

__all__ = ["BASH", "ZSH"]

# Bash splits words at ":" and "=", too; so the line is split again at spaces, and an answer loses the part before the last ":".
BASH = r"""# Completion of waypost for bash; made by: waypost completion bash
@TABLES@

_waypost() {
    local line=${COMP_LINE:0:COMP_POINT} path=waypost next= number=0 kind= opened= i word current quote=
    local -a words config=()
    read -ra words <<<"${line//\\ /_}"
    [[ $line == *[[:space:]] ]] && words+=('')
    current=${words[-1]}
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        word=${words[i]}
        if [[ -n $next ]]; then
            [[ $next == '--config' ]] && config=(--config "$word")
            next=
        elif [[ $word == -- && -z $opened ]]; then
            opened=yes
        elif [[ $word == -?* && -z $opened ]]; then
            [[ $word != *=* && -n ${_waypost_takes["$path $word"]} ]] && next=$word
        elif [[ " ${_waypost_commands["$path"]} " == *" $word "* ]]; then
            path+=" $word"
        else
            number=$((number + 1))
        fi
    done
    COMPREPLY=()
    if [[ -n $next ]]; then
        kind=${_waypost_takes["$path $next"]}
    elif [[ $current == --*=* && -z $opened ]]; then
        kind=${_waypost_takes["$path ${current%%=*}"]}
        current=${current#*=}
    elif [[ $current == -* && -z $opened ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${_waypost_options["$path"]}" -- "$current")
        return
    elif [[ -n ${_waypost_commands["$path"]} ]]; then
        kind=words:${_waypost_commands["$path"]}
    else
        kind=${_waypost_takes["$path $number"]:-${_waypost_takes["$path *"]}}
    fi
    case $kind in
    '' | none) ;;
    words:*) mapfile -t COMPREPLY < <(compgen -W "${kind#words:}" -- "$current") ;;
    files)
        compopt -o default 2>/dev/null
        return
        ;;
    *)
        # Recipients choose some names of destinations: "compgen -W" would run what is in them, and so would an unquoted word.
        [[ $current == [\'\"]* ]] && quote=${current:0:1} && current=${current:1}
        [[ -z $quote ]] && current=${current//\\/}
        while IFS= read -r word; do
            [[ $word == "$current"* ]] || continue
            if [[ -z $quote ]]; then
                word=${word#"${current%"${current##*[:=]}"}"}
                printf -v word %q "$word"
            elif [[ $word == *[\'\"\$\`\\]* ]]; then
                continue
            fi
            COMPREPLY+=("$word")
        done < <("${words[0]}" completion --values "$kind" "${config[@]}" 2>/dev/null)
        ;;
    esac
}

complete -F _waypost waypost
"""

ZSH = r"""#compdef waypost
# Completion of waypost for zsh; made by: waypost completion zsh
@TABLES@

_waypost() {
    local at=waypost next= kind= opened= word found
    local -i number=0 i
    local -a list config
    for ((i = 2; i < CURRENT; i++)); do
        word=${words[i]}
        if [[ -n $next ]]; then
            [[ $next == --config ]] && config=(--config $word)
            next=
        elif [[ $word == -- && -z $opened ]]; then
            opened=yes
        elif [[ $word == -?* && -z $opened ]]; then
            [[ $word != *=* && -n ${_waypost_takes[$at $word]} ]] && next=$word
        elif [[ -n ${(M)${(f)_waypost_commands[$at]}:#${word}:*} ]]; then
            at+=" $word"
        else
            number+=1
        fi
    done
    if [[ -n $next ]]; then
        kind=${_waypost_takes[$at $next]}
    elif [[ $PREFIX == --*=* && -z $opened ]]; then
        kind=${_waypost_takes[$at ${PREFIX%%=*}]}
        compset -P '*='
    elif [[ $PREFIX == -* && -z $opened ]]; then
        list=("${(@f)_waypost_options[$at]}")
        _describe -o option list
        return
    elif [[ -n ${_waypost_commands[$at]} ]]; then
        list=("${(@f)_waypost_commands[$at]}")
        _describe command list
        return
    else
        kind=${_waypost_takes[$at $number]:-${_waypost_takes[$at *]}}
    fi
    case $kind in
    '' | none) return 1 ;;
    words:*) compadd -- ${=kind#words:} ;;
    files) _files ;;
    *)
        found=$(${words[1]} completion --values $kind $config 2>/dev/null)
        compadd -- ${(f)found}
        ;;
    esac
}

if [[ $funcstack[1] == _waypost ]]; then
    _waypost "$@"
else
    compdef _waypost waypost
fi
"""
