#!/bin/sh
# Makes the virtual environment $VENV with RocketPy (editable) and its development tools.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "RocketPy needs Python 3.11 or newer as '$python'; name another with: make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "setup: installing python3-venv" >&2
    as_root apt-get update -qq
    as_root apt-get install -y -qq --no-install-recommends python3-venv
fi
[ -x "$venv/bin/python" ] || { echo "setup: making $venv" >&2; "$python" -m venv "$venv"; }
echo "setup: installing RocketPy and its tools" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
