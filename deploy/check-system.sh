#!/bin/sh
# Names what this machine lacks to install sfnode, with the command that installs it. Changes nothing.
#
#   sh deploy/check-system.sh
#
# Prints the Python to use on standard output. Exit code 0: go on; 1: something is missing (said on standard error).
# PYTHON=/path/to/python chooses one. SFNODE_VENV=.venv names the environment: what it holds need not be compiled.
set -eu

venv=${SFNODE_VENV:-.venv}
missing=''  # one line per missing thing, in words
packages='' # what to install, in the package manager's names

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

# First one that every dependency has a ready-made wheel for, else one that is only new enough.
find_python() {
    fallback=''
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        case $(version_of "$candidate") in
            3.11 | 3.12 | 3.13)
                command -v "$candidate"
                return 0
                ;;
            3.1[4-9] | 3.[2-9][0-9]) fallback=${fallback:-$(command -v "$candidate")} ;;
        esac
    done
    if [ -n "$fallback" ]; then echo "$fallback"; else return 1; fi
}

find_manager() {
    for candidate in apt-get dnf brew; do
        if command -v "$candidate" >/dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    echo none
}

# need DESCRIPTION APT DNF BREW: notes one missing thing and its package in each manager.
need() {
    missing="$missing
  - $1"
    case $manager in
        apt-get) packages="$packages $2" ;;
        dnf) packages="$packages $3" ;;
        brew) packages="$packages $4" ;;
    esac
}

check_python() {
    if python=$(find_python); then
        minor=$(version_of "$python")
        return 0
    fi
    python=''
    if found=$("${PYTHON:-python3}" --version 2>/dev/null); then
        need "Python 3.11 or newer (found: $found)" 'python3.11 python3.11-venv' python3.12 python@3.12
    else
        need "Python 3.11 or newer (found: no ${PYTHON:-python3})" 'python3 python3-venv' python3 python@3.12
    fi
}

check_venv_module() {
    if [ -n "$python" ] && ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        need "the venv module of Python $minor" "python$minor-venv" python3-libs "python@$minor"
    fi
}

has_wheels() {
    case $minor in 3.11 | 3.12 | 3.13) ;; *) return 1 ;; esac
    case "$(uname -s) $(uname -m)" in
        'Linux x86_64' | 'Linux aarch64' | 'Darwin arm64') return 0 ;;
        *) return 1 ;;
    esac
}

# Where some dependency of libp2p has no wheel (coincurve on Python 3.14, say), pip compiles it.
check_compiler() {
    if [ -z "$python" ] || has_wheels; then return 0; fi
    if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import coincurve' >/dev/null 2>&1; then return 0; fi
    if ! command -v "${CC:-cc}" >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1; then
        need "a C compiler (on this system some packages have no ready-made wheel for Python $minor)" gcc gcc gcc
    fi
    if ! [ -f "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]; then
        need "the headers of Python $minor (Python.h)" "python$minor-dev" python3-devel "python@$minor"
    fi
}

report() {
    sudo=''
    if [ "$(id -u)" != 0 ] && [ "$manager" != brew ]; then sudo='sudo '; fi
    case $manager in
        apt-get) command="${sudo}apt-get update && ${sudo}apt-get install -y$packages" ;;
        none) command="(with your system's package manager)" ;;
        *) command="$sudo$manager install$packages" ;;
    esac
    printf 'sfnode cannot be installed yet. This machine lacks:%s\n\n' "$missing" >&2
    printf 'Install what is missing, then run the same command again:\n\n  %s\n\n' "$command" >&2
    exit 1
}

manager=$(find_manager)
check_python
check_venv_module
check_compiler
if [ -n "$missing" ]; then report; fi
echo "$python"
