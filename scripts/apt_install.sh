#!/bin/sh
# Installs Debian packages: apt_install.sh PACKAGE... One caller at a time, because apt fails when
# another one holds its lock, and the steps of the set-up run side by side.
set -eu
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

exec 9> "${TMPDIR:-/tmp}/rocketpy-apt-$(id -u).lock"
flock 9
as_root apt-get update -qq
as_root apt-get install -y -qq --no-install-recommends "$@"
