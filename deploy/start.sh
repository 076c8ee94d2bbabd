#!/bin/sh
# Installs the service into a virtual environment of its own and starts it: sh deploy/start.sh [serve flags]
# Needs Python 3.11 or newer with venv or pip. EGRESS_VENV moves the environment (default: .venv beside the checkout).
set -eu
unset CDPATH
root=$(cd "$(dirname "$0")/.." && pwd -P)
venv=${EGRESS_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac

# What is installed: a fingerprint of the sources, empty while an installation is under way. A first run that was
# interrupted leaves it empty, and the next run starts over from nothing.
stamp=$venv/.egress-proxy

fail() {
    echo "error: $*" >&2
    exit 1
}

# Sets `python`. `-I` everywhere: neither the working directory nor PYTHONPATH, which others may be able to write,
# can slip a module under pip.
find_python() {
    python='' without_pip=''
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        "$name" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if "$name" -I -c 'import venv, ensurepip' 2>/dev/null; then
            python=$name && return
        elif "$name" -I -c 'import venv, pip' 2>/dev/null; then
            python=$name without_pip=--without-pip && return
        fi
        python=$name
    done
    [ -z "$python" ] || fail "$python has neither ensurepip nor pip: install its venv module (Debian, Ubuntu: apt install python3-venv)"
    fail "Python 3.11 or newer was not found: install it (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)"
}

# Paths of both ends are part of it: scripts of an environment that was moved point to where it has been.
fingerprint() {
    cd "$root" && {
        echo "$root $venv"
        find pyproject.toml bin egress_proxy control_api -type f ! -path '*/__pycache__/*' | LC_ALL=C sort | xargs cksum
    } | cksum
}

# False too when the interpreter below was removed or upgraded to another minor version.
works() {
    "$venv/bin/python" -I -c 'import egress_proxy' 2>/dev/null
}

make_venv() {
    if [ -d "$venv" ] && [ ! -e "$stamp" ] && [ -n "$(ls -A "$venv")" ]; then
        fail "$venv was not made by this script: remove it, or set EGRESS_VENV to another folder"
    fi
    mkdir -p "$venv"
    : >"$stamp" # first, so that whatever follows can be told to be ours
    rm -rf "${venv:?}"/*
    "$python" -I -m venv $without_pip "$venv"
}

# All on stderr: stdout belongs to the service, whose first lines name its ports.
install_project() {
    echo "installing into $venv ..." >&2
    set -- install --quiet --disable-pip-version-check "$root"
    if [ -n "$without_pip" ]; then
        "$python" -I -m pip --python "$venv/bin/python" "$@" >&2
    else
        "$venv/bin/python" -I -m pip "$@" >&2
    fi
}

wanted=$(fingerprint)
installed=$(cat "$stamp" 2>/dev/null || :)
if [ "$installed" != "$wanted" ] || ! works; then
    find_python
    if [ -z "$installed" ] || ! works; then
        make_venv
    fi
    : >"$stamp"
    install_project || fail "the installation failed; the lines above say why, and the next run starts over"
    echo "$wanted" >"$stamp.new"
    mv "$stamp.new" "$stamp"
fi

# The script rather than `python -m`, which would put the working directory in front of the module search path.
exec "$venv/bin/egress-proxy" serve "$@"
