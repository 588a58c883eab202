#!/bin/sh
# Unpacks Debian's etcd below PEER_CACHE, for the tests of controllers that share their state.
# Not installed: that would start a service. Where it cannot be had, those tests are skipped.
set -eu

command -v etcd >/dev/null 2>&1 && command -v etcdctl >/dev/null 2>&1 && exit 0
cache=${PEER_CACHE:-$HOME/.cache/rocketpy-peer}
target=$cache/etcd
[ -x "$target/etcdctl" ] && exit 0

give_up() {
    echo "setup: no etcd, its tests are skipped: $1" >&2
    exit 0
}

command -v dpkg-deb >/dev/null 2>&1 || give_up "there is neither etcd in PATH nor a Debian system"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
echo "setup: fetching etcd-server and etcd-client" >&2
if ! apt-get download -qq etcd-server etcd-client >/dev/null 2>&1; then
    [ "$(id -u)" = 0 ] && apt-get update -qq >/dev/null 2>&1 || true
    apt-get download -qq etcd-server etcd-client >/dev/null 2>&1 ||
        give_up "apt-get download etcd-server etcd-client failed"
fi
for package in ./*.deb; do
    dpkg-deb -x "$package" unpacked
done
mkdir -p "$cache"
# Complete or not at all: several set-ups may run at once.
rm -rf "$target.new.$$"
mkdir "$target.new.$$"
cp unpacked/usr/bin/etcd unpacked/usr/bin/etcdctl "$target.new.$$"
mv -T "$target.new.$$" "$target" 2>/dev/null || rm -rf "$target.new.$$"
