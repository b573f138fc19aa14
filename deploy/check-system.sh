#!/bin/sh
# Names what this machine lacks to install sfnode, with the command that installs it. Changes nothing.
#
#   sh deploy/check-system.sh [VENV]
#
# Prints the Python to use on standard output. Exit code 0: go on; 1: something is missing (said on standard error).
# PYTHON=/path/to/python chooses one. Once VENV holds fastecdsa nothing is compiled any more, so no compiler is asked for.
set -eu

venv=${1:-.venv}
missing=''   # one line per missing thing, in words
packages=''  # what to install, in the package manager's names

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if is_new_enough "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

package_manager() {
    for manager in apt-get dnf brew; do
        if command -v "$manager" >/dev/null 2>&1; then
            echo "$manager"
            return 0
        fi
    done
    echo none
}

# need DESCRIPTION APT DNF BREW: notes one missing thing; a name of '-' means that manager has no package for it.
need() {
    missing="$missing
  - $1"
    case $manager in
        apt-get) name=$2 ;;
        dnf) name=$3 ;;
        brew) name=$4 ;;
        *) name=- ;;
    esac
    if [ "$name" != - ]; then packages="$packages $name"; fi
}

check_python() {
    if python=$(find_python); then
        minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        return 0
    fi
    found=$("${PYTHON:-python3}" --version 2>/dev/null || echo 'none')
    need "Python 3.11 or newer (found: $found)" 'python3.11 python3.11-venv' python3.12 python@3.12
    minor=3.11
    python=
}

check_venv_module() {
    if [ -n "$python" ] && ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        need "Python's venv module" "python$minor-venv" python3-libs "python@$minor"
    fi
}

# libp2p depends on fastecdsa, which has no ready-made wheel for Linux: pip compiles it, against libgmp.
check_compiler() {
    if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import fastecdsa' >/dev/null 2>&1; then return 0; fi
    if [ "$(uname -s) $(uname -m)" = 'Darwin arm64' ]; then
        case $minor in 3.11 | 3.12) return 0 ;; esac # these have wheels
    fi
    compiler=$(command -v "${CC:-cc}" || command -v gcc || command -v clang || true)
    if [ -z "$compiler" ]; then
        need 'a C compiler' gcc gcc gcc
        need 'the GMP headers (gmp.h)' libgmp-dev gmp-devel gmp
    elif ! echo '#include <gmp.h>' | "$compiler" ${CPPFLAGS:-} -E - >/dev/null 2>&1; then
        need 'the GMP headers (gmp.h)' libgmp-dev gmp-devel gmp
    fi
    if [ -n "$python" ] && ! [ -f "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]; then
        need "the headers of Python $minor (Python.h)" "python$minor-dev" "python$minor-devel" "python@$minor"
    fi
}

report() {
    sudo=''
    if [ "$(id -u)" != 0 ] && [ "$manager" != brew ]; then sudo='sudo '; fi
    echo "sfnode cannot be installed yet. This machine lacks:$missing" >&2
    case $manager in
        none) echo "Install these with your system's package manager, then run the same command again." >&2 ;;
        apt-get) printf '\nInstall them, then run the same command again:\n\n  %sapt-get update && %sapt-get install -y%s\n\n' "$sudo" "$sudo" "$packages" >&2 ;;
        *) printf '\nInstall them, then run the same command again:\n\n  %s%s install%s\n\n' "$sudo" "$manager" "$packages" >&2 ;;
    esac
    exit 1
}

manager=$(package_manager)
check_python
check_venv_module
check_compiler
if [ -n "$missing" ]; then report; fi
echo "$python"
