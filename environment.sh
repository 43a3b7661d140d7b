# shellcheck shell=sh
# Makes the virtual environment of ./run, ./test and ./make-release, and installs the Debian packages they need. They source it; POSIX sh.
#
# Laws: only packages that the lock names with their hashes are fetched. pip's own settings (PIP_*, pip.conf) apply, so that the user's
# mirror or proxy is used. A second start compares one stamp and fetches nothing. Nothing outside the checkout changes, except Debian
# packages if root runs this.

PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" # Debian's daemons are there, and a user's path lacks it
export PATH

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# debian_packages NAME...: installs the missing packages if root runs it; otherwise prints the command that installs them, and exits.
debian_packages() {
    missing=""
    for package in "$@"; do
        case $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) in
        installed) ;;
        *) missing="$missing $package" ;;
        esac
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        say "missing Debian packages:$missing. Install them as root:"
        say "    apt-get update && apt-get install --no-install-recommends$missing"
        say "then start ./${0##*/} again."
        exit 69 # EX_UNAVAILABLE, sysexits.h
    fi
    say "installing Debian packages:$missing"
    # Daemons in these packages must not start: the tests start their own, on other ports.
    policy=/usr/sbin/policy-rc.d
    policy_made=""
    if [ ! -e "$policy" ]; then
        policy_made=yes
        trap 'rm -f "$policy"' EXIT
        trap 'exit 1' INT TERM HUP
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    output=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
        -o Dpkg::Use-Pty=0 $missing; } >"$output" 2>&1 </dev/null; then
        cat "$output" >&2
        rm -f "$output"
        say "apt-get could not install:$missing (see its messages above)."
        exit 69
    fi
    rm -f "$output"
    if [ -n "$policy_made" ]; then
        rm -f "$policy"
        trap - EXIT INT TERM HUP
    fi
}

# need COMMAND=PACKAGE...: installs the Debian packages of commands that are not on the path, and also Python if it is missing.
need() {
    wanted=""
    lacking=""
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null 2>&1 && continue
        wanted="$wanted ${pair#*=}"
        lacking="$lacking ${pair%%=*}"
    done
    if ! usable_python >/dev/null; then
        wanted="$wanted python3 python3-venv"
        lacking="$lacking python3"
    fi
    [ -n "$wanted" ] || return 0
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        say "these commands are missing:$lacking. Debian has them in the packages$wanted; install them and start again."
        exit 69
    fi
    # shellcheck disable=SC2086 # a list of words
    debian_packages $wanted
}

# Prints the name of a Python, 3.11 or newer, that can make a virtual environment. Returns 1 if there is none.
usable_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$name"
            return 0
        fi
    done
    return 1
}

find_python() {
    python=$(usable_python) && return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        say "Python 3.11 or newer with its venv module is missing; install it and start again."
        exit 69
    fi
    debian_packages python3 python3-venv
    python=$(usable_python) && return 0
    say "Python 3.11 or newer with its venv module is missing, and this system's packages have an older one:"
    say "$(python3 --version 2>&1). Install a newer one as python3.11, python3.12, ... and start again."
    exit 69
}

# environment LOCK [LARGER_LOCK]: installs the packages of LOCK into .venv, unless they or those of LARGER_LOCK are installed.
environment() {
    # If two start at once, the second waits until the first has installed.
    exec 9>.venv.lock
    ! command -v flock >/dev/null 2>&1 || flock 9
    if ! installed "$@"; then
        find_python
        # In a copied or moved checkout the scripts contain other paths; a removed Python leaves a dead link.
        if ! .venv/bin/python -c '' 2>/dev/null || ! grep -qF "$PWD/.venv/" .venv/bin/pip 2>/dev/null; then
            say "making the virtual environment .venv"
            rm -rf .venv
            "$python" -m venv .venv
        fi
        say "installing the packages of $1 (the first start takes a few minutes, later ones seconds)"
        rm -f .venv/installed.*
        # PIP_USER would install outside the environment; PIP_REQUIRE_HASHES would refuse our own source tree.
        # Spark is available only as a source package; it is built with setuptools of the lock, which must be installed before it.
        awk '/^setuptools==/ { p = 1; print; next } /^[^ #]/ { p = 0 } p' "$1" >.venv/first.txt
        # The build needs 2 GB; /tmp may have less if it is in memory, as on Debian 13.
        rm -rf .venv/tmp
        mkdir .venv/tmp
        if ! {
            pip_install --only-binary :all: --require-hashes --requirement .venv/first.txt &&
                pip_install --only-binary :all: --no-binary pyspark,dkimpy --no-build-isolation --require-hashes --requirement "$1" &&
                pip_install --no-deps --no-build-isolation --editable .
        }; then
            say "pip could not install the packages of $1 (see its messages above). Check the package index in pip's settings."
            exit 69
        fi
        rm -rf .venv/tmp
        fingerprint "$1" >".venv/installed.$1"
    fi
    exec 9>&-
}

pip_install() {
    PIP_USER=0 PIP_REQUIRE_HASHES=0 TMPDIR="$PWD/.venv/tmp" \
        .venv/bin/python -m pip --disable-pip-version-check install --quiet "$@" >&2 </dev/null
}

installed() {
    for lock in "$@"; do
        if [ -x .venv/bin/python ] && [ "$(cat ".venv/installed.$lock" 2>/dev/null)" = "$(fingerprint "$lock")" ]; then
            return 0
        fi
    done
    return 1
}

# Prints what the environment depends on: the lock, pyproject.toml, the Python version, the directory.
fingerprint() {
    cat "$1" pyproject.toml | cksum
    .venv/bin/python -c 'import sys; print(sys.version, sys.prefix)' 2>&1
}
