# fish completion for bevy: commands, and the long options of each, as its own help lists them.
set -l commands run serve inspect make-model
complete -c bevy -f -n "not __fish_seen_subcommand_from $commands" -a "$commands"
complete -c bevy -F -n "__fish_seen_subcommand_from $commands" \
    -a "(set -l words (commandline -opc); test \$words[2] = make-model; and set words \$words[1] make-model random; \$words[1] \$words[2..3] --help 2>/dev/null | string match -ra -- '--[a-z][a-z-]+' | sort -u)"
