#!/usr/bin/env bash
# Installs what is missing: Debian packages, and the virtual environment build/venv.
#   tools/setup/setup.sh [--no-python] GROUP…     groups: build test lint slow bench docs
# Says nothing and takes under a second when nothing is missing.
# Exits with one sentence when something is not available.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
log=$root/build/setup.log
mkdir -p "$root/build"

fail() {
  echo "set-up: $1" >&2
  exit 3
}

python=yes
if [ "${1:-}" = --no-python ]; then
  python=no
  shift
fi
groups=("${@:-build}")

# --- Debian packages -------------------------------------------------------------------------
command -v dpkg-query >/dev/null ||
  fail "this machine is not Debian; install the packages listed in tools/setup/debian-*.txt by hand and use the CMake presets directly."

wanted() { # name version, one a line, for all groups
  local group
  for group in "${groups[@]}"; do
    [ -f "$here/debian-$group.txt" ] && grep -v '^#' "$here/debian-$group.txt"
  done | { if [ $python = yes ]; then cat; else grep -v '^python3'; fi; }
}

missing=()
while read -r name version; do
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$name" 2>/dev/null || true)
  case $installed in
    "installed $version"*) ;;
    installed*) fail "$name is installed as version ${installed#installed }, and $version is needed: discreet is built on Debian 12." ;;
    *) missing+=("$name") ;;
  esac
done < <(wanted)

if [ ${#missing[@]} -gt 0 ]; then
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    sudo=$(command -v sudo) || fail "these packages are missing and need root or sudo to install: ${missing[*]}"
  fi
  echo "set-up: installing ${#missing[@]} Debian packages (log: build/setup.log)"
  $sudo apt-get update >>"$log" 2>&1 ||
    fail "apt-get update failed; is the network up? The log is build/setup.log."
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1 ||
    fail "apt-get could not install: ${missing[*]}. The reason is at the end of build/setup.log."
fi

# --- The virtual environment -----------------------------------------------------------------
[ $python = yes ] || exit 0
venv=$root/build/venv
locks=()
for group in "${groups[@]}"; do
  [ -f "$here/python-$group.lock" ] && locks+=("$here/python-$group.lock")
done
[ ${#locks[@]} -gt 0 ] || exit 0

# The stamp of a group set holds what was installed for it.
stamp=$venv/.installed-$(IFS=-; echo "${groups[*]}")
content=$(cat "$here"/python-*.lock)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$content" ]; then
  exit 0
fi
[ -x "$venv/bin/python" ] || ${PYTHON:-/usr/bin/python3} -m venv "$venv" >>"$log" 2>&1 ||
  fail "${PYTHON:-/usr/bin/python3} could not make a virtual environment; is python3-venv installed?"
# So that build/venv/bin/python finds the package that was built.
echo "$root/build/python" >"$(echo "$venv"/lib/python3*/site-packages)/discreet.pth"
# A lock names everything, so nothing is resolved. Wheels only: what builds a source package has no hash.
install() {
  "$venv/bin/python" -m pip install --no-cache-dir --disable-pip-version-check \
    --require-hashes --no-deps --only-binary :all: "$@" >>"$log" 2>&1
}
echo "set-up: installing Python packages into build/venv (log: build/setup.log)"
# Where pip finds a build of PyTorch for processors only, that one: it needs none of CUDA's libraries, of two gigabytes.
if grep -q '^torch==' "${locks[@]}"; then install -r "$here/python-cpu.lock" || true; fi
install "${locks[@]/#/--requirement=}" ||
  fail "pip could not install the packages of tools/setup/python-*.lock; is the network up? The log is build/setup.log."
if grep -qs '^Requires-Dist: cuda-' "$venv"/lib/python3*/site-packages/torch-*.dist-info/METADATA; then
  install -r "$here/python-cuda.lock" ||
    fail "pip could not install the packages of tools/setup/python-cuda.lock; is the network up? The log is build/setup.log."
fi
echo "$content" >"$stamp"
