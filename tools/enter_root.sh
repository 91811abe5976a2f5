#!/bin/bash
# enter_root.sh ROOT FOLDER USER COMMAND...: puts together a file system from ROOT's /usr and /etc
# and all else of this machine, and runs the command there, in FOLDER, as USER ("uid:gid", or - for
# as is).
# REQUIRES: a mount namespace of its own, and root in it; ./dev sees to both.
set -euo pipefail

root=$1 folder=$2 user=$3
shift 3

top=$root/mnt
mount -t tmpfs -o mode=755,size=1m bevy-root "$top"

# Names at the top: the root's own ones are its system, the others are the machine's.
for path in "$root"/* /*; do
    name=${path##*/}
    target=$top/$name
    [[ ! -e $target && ! -L $target ]] || continue
    case $name in
        bin | sbin | lib* | usr | etc) source=$root/$name ;;
        *) source=/$name ;;
    esac
    if [[ -L $source ]]; then
        cp -P "$source" "$target"
    elif [[ -d $source ]]; then
        mkdir "$target"
        mount --rbind "$source" "$target" || echo "dev: not visible inside: $source" >&2
    fi
done

# A checkout may lie in /usr/local or /usr/src.
if [[ $folder == /usr/* || $folder == /etc/* ]]; then
    mkdir -p "$top$folder"
    mount --rbind "$folder" "$top$folder"
fi

as_user=()
[[ $user == - ]] || as_user=("--userspec=$user")
# shellcheck disable=SC2016
exec chroot "${as_user[@]}" "$top" /bin/bash -c 'cd "$1" && shift && exec "$@"' bevy "$folder" "$@"
