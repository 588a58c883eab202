#!/bin/sh
# Installs a JDK (11 or newer) and Maven through apt when they are absent.
set -eu
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

missing=
command -v javac >/dev/null 2>&1 || missing="$missing default-jdk-headless"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
[ -n "$missing" ] || exit 0
echo "setup: installing$missing" >&2
as_root apt-get update -qq
# shellcheck disable=SC2086  # a list of packages
as_root apt-get install -y -qq --no-install-recommends $missing
