#!/bin/sh
# Renews constraints.txt: installs the newest versions that pyproject.toml allows into a fresh environment and writes
# down what pip chose. Run it as `make lock`; the tests then say whether those versions work together.
set -eu
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=$(sh deploy/check-system.sh "$folder/venv")
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
# TORCH pins the one package whose version decides what the measured figures mean: TORCH=2.14.0 make lock
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==${TORCH:-2.13.0}" '.[train,dev]'
{
    echo '# Versions that are known to work together, for `pip install -c constraints.txt`. Made by `make lock`; do not edit.'
    # A build label (+cpu) and NVIDIA's packages belong to one kind of machine: torch itself asks for the right ones.
    "$folder/venv/bin/python" -m pip freeze --exclude sfnode --exclude pip --exclude setuptools |
        sed -E 's/\+[a-z0-9.]+$//' | grep -v -E '^(nvidia-|triton==|cuda-|-e |sfnode)' | LC_ALL=C sort -f
} >"$folder/constraints.txt"
if grep -E '@ |://' "$folder/constraints.txt"; then
    echo 'lock: the lines above name a place instead of a version; constraints.txt is left as it was' >&2
    exit 1
fi
mv "$folder/constraints.txt" constraints.txt
echo "constraints.txt: $(grep -c == constraints.txt) packages"
