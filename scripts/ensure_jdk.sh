#!/bin/sh
# Installs a JDK (11 or newer) and Maven through apt when they are absent.
set -eu

missing=
command -v javac >/dev/null 2>&1 || missing="$missing default-jdk-headless"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
[ -n "$missing" ] || exit 0
echo "setup: installing$missing" >&2
# shellcheck disable=SC2086  # a list of packages
sh "$(dirname "$0")/apt_install.sh" $missing
