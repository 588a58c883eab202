#!/bin/sh
# Makes the virtual environment $VENV with RocketPy (editable), its development tools and $EXTRAS.
# One call of pip installs all of it: each call compiles the editable package again.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}

extras=dev${EXTRAS:+,$EXTRAS}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "RocketPy needs Python 3.11 or newer as '$python'; name another with: make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "setup: installing python3-venv" >&2
    sh scripts/apt_install.sh python3-venv
fi
[ -x "$venv/bin/python" ] || { echo "setup: making $venv" >&2; "$python" -m venv "$venv"; }
echo "setup: installing RocketPy with $extras" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
