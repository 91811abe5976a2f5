#compdef bevy
# zsh completion for bevy: commands, and the long options of each, as its own help lists them.
_bevy() {
    local -a options
    if ((CURRENT == 2)); then
        _values command run serve inspect make-model
        return
    fi
    local -a command=($words[2])
    [[ $words[2] == make-model ]] && command+=(random)
    case $words[CURRENT - 1] in
        -m | --model | --config | --*-file | --prompts | --trace | -o | --output)
            _files
            return
            ;;
    esac
    options=(${(u)${(f)"$($words[1] $command --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+')"}})
    compadd -- $options
}
_bevy "$@"
