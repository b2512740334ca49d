#!/bin/sh
# Sees to the packages of apt.txt, and of further lists beside it: silent if all are there, else installs the
# missing ones as root or through sudo. Where it may not, it says in one line what to install, and exits with 1.
#
#   third_party/install.sh [--check] [LIST...]     --check installs nothing, and only asks whether it could
set -eu

check=
if [ "${1:-}" = --check ]; then
    check=yes
    shift
fi
wanted=$(cd "$(dirname "$0")" && sed 's/#.*//' apt.txt "$@")
if ! command -v dpkg-query >/dev/null; then
    [ -n "$check" ] || echo "not a Debian system: going on as if these were installed:" $wanted
    exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null || true)
missing=
for package in $wanted; do
    echo "$installed" | grep -qxF "installed $package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo  # asks for the password if it needs one and there is somebody to ask
else
    echo "Debian packages are missing, and only root can add them: apt-get install$missing" >&2
    exit 1
fi
[ -z "$check" ] || exit 0

echo "installing Debian packages:$missing"
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
