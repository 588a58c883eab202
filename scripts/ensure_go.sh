#!/bin/sh
# Installs Go through apt when it is absent; the tests fetch the official client through Go's module proxy.
set -eu
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

command -v go >/dev/null 2>&1 && exit 0
echo "setup: installing golang-go" >&2
as_root apt-get update -qq
as_root apt-get install -y -qq --no-install-recommends golang-go ca-certificates
