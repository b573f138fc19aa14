#!/bin/sh
# Renews constraints.txt: installs the newest versions that pyproject.toml allows into a fresh environment and writes
# down what pip chose. Run it as `make lock`; the tests then say whether those versions work together.
set -eu
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=$(SFNODE_VENV="$folder/venv" sh deploy/check-system.sh)
"$python" -m venv "$folder/venv"
# torch is the one package whose version the measured figures depend on: TORCH=2.14.0 make lock
"$folder/venv/bin/python" deploy/install.py --unpinned --editable --extras train,web,dev "torch==${TORCH:-2.13.0}"
{
    echo '# Versions that work together, for pip install -c constraints.txt. Made by make lock; do not edit.'
    # A build label (+cpu) and the packages of one GPU maker belong to one kind of machine: torch asks for the right ones.
    "$folder/venv/bin/python" -m pip freeze --exclude sfnode --exclude pip --exclude setuptools \
        | sed -E 's/\+[a-z0-9.]+$//' | grep -v -E '^(nvidia-|cuda-|triton==)' | LC_ALL=C sort -f
} >"$folder/constraints.txt"
if grep -E '@ |://' "$folder/constraints.txt"; then
    echo 'lock: the lines above name a place instead of a version; constraints.txt is left as it was' >&2
    exit 1
fi
cp "$folder/constraints.txt" constraints.txt
echo "constraints.txt: $(grep -c == constraints.txt) packages"
