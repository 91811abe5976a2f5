# bash completion for bevy: commands, and the long options of each, as its own help lists them.
_bevy() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=
    local commands="run serve inspect make-model"
    local i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            run | serve | inspect) command=${COMP_WORDS[i]} ;;
            make-model) command="make-model random" ;;
        esac
    done
    case $previous in
        -m | --model | --config | --api-key-file | --ssl-key-file | --ssl-cert-file | --prompts | \
            --trace | --chat-template-file | -o | --output)
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
            ;;
        make-model)
            mapfile -t COMPREPLY < <(compgen -W random -- "$word")
            return
            ;;
    esac
    if [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word")
    elif [[ $word == -* ]]; then
        # shellcheck disable=SC2086
        mapfile -t COMPREPLY < <(compgen -W \
            "$("${COMP_WORDS[0]}" $command --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u)" \
            -- "$word")
    fi
}
complete -o filenames -F _bevy bevy
