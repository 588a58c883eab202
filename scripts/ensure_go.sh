#!/bin/sh
# Installs Go through apt when it is absent; the tests fetch the official client through Go's module proxy.
set -eu

command -v go >/dev/null 2>&1 && exit 0
echo "setup: installing golang-go" >&2
sh "$(dirname "$0")/apt_install.sh" golang-go ca-certificates
