# shellcheck shell=sh
# The virtual environment of ./run and ./test, and the Debian packages they need. Sourced by both; POSIX sh.
#
# Laws: nothing is fetched that the lock does not name with its hash; pip's own settings (PIP_*, pip.conf) hold, so that a
# mirror or a proxy works as the user has set it; a second start compares one stamp and fetches nothing. Nothing outside the
# checkout is changed, but Debian packages when root runs this.

PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" # Debian keeps daemons there, out of a user's path
export PATH

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# debian_packages NAME...: installs those that are missing when it may, otherwise says what to type and ends.
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
        say "these Debian packages are missing:$missing. As root, type"
        say "    apt-get update && apt-get install --no-install-recommends$missing"
        say "and then ./${0##*/} again."
        exit 69 # EX_UNAVAILABLE, sysexits.h
    fi
    say "installing Debian packages:$missing"
    # A daemon that comes with a package must not start: the tests start their own, on ports of their own.
    policy=/usr/sbin/policy-rc.d
    policy_made=""
    if [ ! -e "$policy" ]; then
        policy_made=yes
        trap 'rm -f "$policy"' EXIT
        trap 'exit 1' INT TERM HUP
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    words=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
        -o Dpkg::Use-Pty=0 $missing; } >"$words" 2>&1 </dev/null; then
        cat "$words" >&2
        rm -f "$words"
        say "apt-get could not install:$missing (its own words are above)."
        exit 69
    fi
    rm -f "$words"
    if [ -n "$policy_made" ]; then
        rm -f "$policy"
        trap - EXIT INT TERM HUP
    fi
}

# need COMMAND=PACKAGE...: Debian packages for the commands that are not there, wherever they come from. Python is always
# needed, and asked for in the same breath.
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

# Python 3.11 or newer that can make a virtual environment: prints its name.
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

# environment LOCK [BIGGER_LOCK]: makes .venv hold what LOCK names. BIGGER_LOCK, when installed, serves as well.
environment() {
    # Two starts at once: the second waits until the first has installed.
    exec 9>.venv.lock
    ! command -v flock >/dev/null 2>&1 || flock 9
    if ! installed "$@"; then
        find_python
        # A copied or moved checkout has another's paths in its scripts; a Python that is gone leaves a dead link.
        if ! .venv/bin/python -c '' 2>/dev/null || ! grep -qF "$PWD/.venv/" .venv/bin/pip 2>/dev/null; then
            say "making the virtual environment .venv"
            rm -rf .venv
            "$python" -m venv .venv
        fi
        say "installing what $1 names (the first start takes a few minutes, later ones seconds)"
        rm -f .venv/installed.*
        # PIP_USER would install past the environment, PIP_REQUIRE_HASHES would refuse our own source tree.
        # Spark comes as a source package only; it is built with the lock's own setuptools, which must be there before it.
        awk '/^setuptools==/ { p = 1; print; next } /^[^ #]/ { p = 0 } p' "$1" >.venv/first.txt
        # It takes 2 GB to build, and where /tmp lies in memory, as on Debian 13, there may be less.
        rm -rf .venv/tmp
        mkdir .venv/tmp
        if ! {
            pip_install --only-binary :all: --require-hashes --requirement .venv/first.txt &&
                pip_install --only-binary :all: --no-binary pyspark --no-build-isolation --require-hashes --requirement "$1" &&
                pip_install --no-deps --no-build-isolation --editable .
        }; then
            say "pip could not install what $1 names (its own words are above). It asks the index that its settings name."
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

# What the environment was made from: the lock, the package's own description, the Python, the place.
fingerprint() {
    cat "$1" pyproject.toml | cksum
    .venv/bin/python -c 'import sys; print(sys.version, sys.prefix)' 2>&1
}
