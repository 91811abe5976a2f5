# shellcheck shell=bash
# Where Bevy is built: on this machine itself if its distribution has the libraries (ggml 0.27 and
# libllama: Debian forky, sid, Ubuntu 26.04 and later), else in a Debian forky root file system,
# made once in the user's cache folder and entered for each command. Sourced by ./dev.
#
# The root is only read: a mount namespace is put together from its /usr and /etc and everything
# else of this machine (home folders, disks, /proc, /sys ...), so that files lie where they always
# lie. It is made in a temporary folder under a lock and renamed when complete; a try that was
# interrupted leaves nothing that counts, and is cleared away by the next one.

: "${repo_dir:?set by ./dev}"
root_suite=forky
root_recipe=1 # raise it when make_root() changes what ends up in the root
ggml_version_min=0.27

PATH=$PATH:/usr/sbin:/sbin # chroot, also for ordinary users
HOME=${HOME:-$(getent passwd "$EUID" | cut -d: -f6)}
export HOME
cache_dir=${BEVY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bevy}
mkdir -p "$cache_dir" 2>/dev/null || cache_dir=$repo_dir/.cache
packages_file=$repo_dir/tools/packages.txt

say() { printf '\033[1mdev:\033[0m %s\n' "$*" >&2; }
if [[ -n ${NO_COLOR:-} || ! -t 2 ]]; then say() { printf 'dev: %s\n' "$*" >&2; }; fi

# die MESSAGE [HINT...]: the hints on lines of their own.
die() {
    say "error: $1"
    shift
    (($# == 0)) || printf '     %s\n' "$@" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

list_packages() { sed -E 's/#.*//' "$packages_file" | awk 'NF { print $2 }'; }

# Runs a command as root, or says which one somebody with the right to must run.
as_root() {
    if ((EUID == 0)); then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "this needs root, and there is no sudo. Run as root, then try again:" "$*"
    fi
}

apt_lists_updated=
apt_install() {
    say "installing with apt: $*"
    if [[ -z $apt_lists_updated ]]; then
        as_root apt-get -o Acquire::Check-Valid-Until=false update -qq </dev/null >&2 ||
            say "apt-get update failed; going on with the package lists there are"
        apt_lists_updated=1
    fi
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2 ||
        die "apt could not install: $*" "Its messages above say why."
}

# --- native ---------------------------------------------------------------------------------------

missing_packages() {
    local package
    for package in $(list_packages); do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
            echo "$package"
    done
}

# The version of libggml-dev that is installed or could be, from the package lists as they are.
ggml_candidate() {
    { dpkg-query -W -f '${Version}\n' libggml-dev || true
      apt-cache show --no-all-versions libggml-dev | sed -n 's/^Version: //p'; } 2>/dev/null |
        sed '/^$/d' | head -n 1
}

# True if this release of the distribution is known to have the libraries, whatever apt knows now.
is_recent_distribution() (
    # shellcheck disable=SC1091
    . /etc/os-release 2>/dev/null || exit 1
    case ${ID:-} in
        debian) [[ ${VERSION_CODENAME:-sid} =~ ^(forky|sid|duke)$ || ${VERSION_ID:-0} -ge 14 ]] ;;
        ubuntu) [[ ${VERSION_ID%%.*} -ge 26 ]] ;;
        *) false ;;
    esac
)

is_native() {
    have dpkg-query && have apt-get || return 1
    is_recent_distribution && return 0
    local version
    version=$(ggml_candidate)
    [[ -n $version ]] && dpkg --compare-versions "$version" ge "$ggml_version_min"
}

# auto (the default), native or root.
choose_environment() {
    [[ -z ${BEVY_INSIDE:-} ]] || { echo native; return; }
    case ${BEVY_ENV:-auto} in
        native | root) echo "$BEVY_ENV" ;;
        auto) if is_native; then echo native; else echo root; fi ;;
        *) die "BEVY_ENV=$BEVY_ENV is not one of: auto, native, root" ;;
    esac
}

prepare_native() {
    local missing=()
    if have dpkg-query; then
        mapfile -t missing < <(missing_packages)
    fi
    ((${#missing[@]} == 0)) || apt_install "${missing[@]}"
}

# --- root file system -----------------------------------------------------------------------------

root_id() {
    { echo "$root_suite $root_recipe $(uname -m)"; list_packages; } | sha256sum | cut -c1-12
}
root_dir() { echo "$cache_dir/root-$(root_id)"; }

# How this user may enter a mount namespace: root, userns or sudo.
entry_mode() {
    if ((EUID == 0)); then
        unshare --mount true 2>/dev/null ||
            die "root may not mount here (a container without CAP_SYS_ADMIN?)" \
                "Start the container with more rights, or from an image of Debian $root_suite," \
                "where no mounts are needed."
        echo root
    elif unshare --user --map-root-user --mount true 2>/dev/null; then
        echo userns
    elif have sudo; then
        echo sudo
    else
        die "this machine lets no ordinary user make a user namespace, and there is no sudo" \
            "Allow it (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone," \
            "kernel.apparmor_restrict_unprivileged_userns), or run ./dev as root."
    fi
}

# Whether mmdebstrap can work as this user: it needs user ids to spare.
has_sub_ids() {
    local name
    name=$(id -un)
    have newuidmap && grep -qE "^($name|$UID):" /etc/subuid 2>/dev/null &&
        grep -qE "^($name|$UID):" /etc/subgid 2>/dev/null
}

# Removes what an interrupted try left. Files of other user ids go in their namespace only.
clear_leftovers() {
    local leftover
    for leftover in "$cache_dir"/making-*; do
        # A link names the folder where mmdebstrap worked.
        if [[ -L $leftover ]]; then
            remove_tree "$(readlink "$leftover")"
            rm -f "$leftover"
        elif [[ -d $leftover ]]; then
            remove_tree "$leftover"
        fi
    done
}

remove_tree() {
    [[ -e $1 ]] || return 0
    say "removing what an interrupted try left: $1"
    rm -rf "$1" 2>/dev/null ||
        unshare --user --map-auto --map-root-user rm -rf "$1" 2>/dev/null ||
        as_root rm -rf "$1"
}

# Installs what making a root takes, where it is missing.
find_tools() {
    local missing=()
    have mmdebstrap || missing+=(mmdebstrap)
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || missing+=(debian-archive-keyring)
    ((EUID == 0)) || have newuidmap || missing+=(uidmap)
    ((${#missing[@]} == 0)) && return
    have apt-get || die "this is no Debian or Ubuntu, and something is missing: ${missing[*]}" \
        "Install it with the package manager of this distribution, or use the Dockerfile."
    apt_install "${missing[@]}"
}

# The root file system as a tar stream. mmdebstrap works in the folder given.
stream_root() {
    local work_dir=$1 options=(
        --variant=apt --format=tar "--include=$(list_packages | paste -sd,)"
        '--aptopt=Acquire::Check-Valid-Until "false"'
        '--aptopt=Acquire::Retries "3"'
        '--dpkgopt=path-exclude=/usr/share/man/*'
        '--dpkgopt=path-exclude=/usr/share/locale/*'
        '--dpkgopt=path-exclude=/usr/share/doc/*'
    )
    if ((EUID == 0)); then
        TMPDIR=$work_dir mmdebstrap --mode=root "${options[@]}" "$root_suite" -
    elif has_sub_ids && [[ $(entry_mode) == userns ]]; then
        TMPDIR=$work_dir mmdebstrap --mode=unshare "${options[@]}" "$root_suite" -
    else
        as_root env TMPDIR="$work_dir" mmdebstrap --mode=root "${options[@]}" "$root_suite" -
    fi
}

# Everything in the root belongs to the user and can be removed like any folder.
unpack_root() {
    tar --extract --directory="$1" --no-same-owner --no-same-permissions --mode=u+rwX \
        --exclude='./dev/*' --exclude='./var/cache/*' --exclude='./var/lib/apt/lists/*'
}

# make_root ROOT. REQUIRES: the lock of the cache folder.
make_root() {
    local root=$1 making=$cache_dir/making-$$ work_dir
    # Where mmdebstrap works, other user ids must be able to pass; home folders are often closed.
    work_dir=${TMPDIR:-/var/tmp}/bevy-root-$EUID-$$-$RANDOM
    say "making a Debian $root_suite root file system, once: $root"
    say "with $(list_packages | paste -sd' ')"
    say "this takes a minute or two and, while it is made, 3 GB"
    ln -s "$work_dir" "$making.work"
    mkdir -m 755 "$work_dir"
    mkdir "$making"
    if ! stream_root "$work_dir" </dev/null | unpack_root "$making"; then
        die "the root file system could not be made; the messages above say why" \
            "If a signature could not be checked: install the newest debian-archive-keyring." \
            "If the network failed: run the same command again."
    fi
    echo "127.0.0.1 localhost" >"$making/etc/hosts"
    [[ -x $making/usr/bin/cmake && -e $making/usr/bin/g++ ]] ||
        die "the new root file system lacks a compiler; the messages above say why"
    rm -rf "$work_dir" "$making.work"
    mv -T "$making" "$root"
    say "ready, $(du -sh "$root" | cut -f1)"
}

prepare_root() {
    local root
    root=$(root_dir)
    [[ ! -d $root ]] || return 0
    (
        flock --nonblock 9 || {
            say "another ./dev makes the root file system; waiting"
            flock 9
        }
        [[ ! -d $root ]] || exit 0
        find_tools
        if ((EUID != 0)) && ! has_sub_ids && ! have sudo; then
            die "mmdebstrap needs user ids to spare, and $(id -un) has none. As root, run:" \
                "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)"
        fi
        clear_leftovers
        trap clear_leftovers EXIT
        trap 'exit 130' INT TERM HUP
        make_root "$root"
    ) 9>"$cache_dir/lock"
}

# --- running a command in either ------------------------------------------------------------------

environment=

# Makes the environment if it is not there yet. Sets environment (native or root) and
# environment_id, which changes when the installed packages do.
prepare_environment() {
    [[ -z $environment ]] || return 0
    environment=$(choose_environment)
    if [[ -n ${BEVY_INSIDE:-} ]]; then
        environment_id=$BEVY_ENV_ID # ./dev within ./dev shell
    elif [[ $environment == native ]]; then
        prepare_native
        environment_id=native-$(list_packages | xargs dpkg-query -W 2>/dev/null | sha256sum |
            cut -c1-12)
    else
        entry=$(entry_mode)
        prepare_root
        environment_id=root-$(root_id)
    fi
    export BEVY_CACHE=$cache_dir BEVY_ENV_ID=$environment_id
    export CCACHE_DIR=${CCACHE_DIR:-$cache_dir/ccache}
}

# The variables that a root file system gets to see, as NAME=value, one after the other.
passed_variables=()
collect_variables() {
    local name
    passed_variables=(PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 BEVY_INSIDE=1)
    for name in $(compgen -e); do
        case $name in
            HOME | USER | LOGNAME | TERM | COLORTERM | CI | NO_COLOR | TMPDIR | XDG_CACHE_HOME | \
                BEVY_* | CCACHE_* | LLAMA_* | GGML_* | OMP_* | \
                GTEST_* | *SAN_OPTIONS | CTEST_* | NINJA_STATUS)
                passed_variables+=("$name=${!name}")
                ;;
        esac
    done
}

# Runs a command in the environment, in the current folder; input, output and exit status pass.
via=()
inside() {
    if [[ $environment == native ]]; then
        "${via[@]}" "$@"
        return
    fi
    collect_variables
    local unshare=(unshare --mount) user=-
    case $entry in
        userns) unshare=(unshare --user --map-root-user --mount) ;;
        sudo)
            unshare=(sudo unshare --mount)
            user=$(id -u):$(id -g)
            ;;
    esac
    "${via[@]}" "${unshare[@]}" bash "$repo_dir/tools/enter_root.sh" "$(root_dir)" "$PWD" "$user" \
        /usr/bin/env -i "${passed_variables[@]}" "$@"
}

# The same, in place of this process, so that signals sent to it arrive too.
become_inside() {
    via=(exec)
    inside "$@"
}
