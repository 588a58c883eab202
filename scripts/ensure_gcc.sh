#!/bin/sh
# Installs a C compiler and Python's headers through apt when they are absent. Where that is not
# possible the compiled send path is neither built nor tested: said here, and no failure.
set -eu
python=${PYTHON:-python3}
can_compile() {
    "$python" - <<'END'
import os, pathlib, shutil, sys, sysconfig
command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
headers = pathlib.Path(sysconfig.get_path("include"), "Python.h")
sys.exit(not (shutil.which(command) and headers.exists()))
END
}

can_compile && exit 0
echo "setup: installing gcc" >&2
sh "$(dirname "$0")/apt_install.sh" gcc libc6-dev python3-dev ||
    echo "setup: gcc cannot be installed" >&2
can_compile || echo "setup: NO C COMPILER (or no headers) for $python: compiled sends are NOT tested, pure Python is" >&2
