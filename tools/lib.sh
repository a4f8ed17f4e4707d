# What the scripts of this folder share: packages, build folders, where nvcc is. Sourced, never run.
# Debian 12 and 13 and Ubuntu 24.04 are served by apt; elsewhere the scripts go on with what is there.
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 4

build_packages=(g++ meson ninja-build pkg-config git ca-certificates libboost-context-dev libzstd-dev
                libcli11-dev nlohmann-json3-dev libfmt-dev)
test_packages=(libgtest-dev libbenchmark-dev make cmake)

say() { printf '%s\n' "$*" >&2; }
title() { printf '\n== %s\n' "$*" >&2; }
die() { local code=$1; shift; say "$(basename "$0"): $*"; exit "$code"; }

# Prints those of the named packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
  done
}

# Sets `as_root` to the words that run a command as root; fails where there is no way.
find_root() {
  if [ "$(id -u)" = 0 ]; then
    as_root=()
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo)
  else
    return 1
  fi
}

# Quiet unless it fails.
apt_install() {
  local attempt log status=0
  log=$(mktemp)
  for attempt in 1 2 3; do
    "${as_root[@]}" apt-get update -q </dev/null >"$log" 2>&1 && break
    say "apt-get update failed (try $attempt of 3): $(tail -n 1 "$log")"
    sleep 2
  done
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q -o Dpkg::Use-Pty=0 --no-install-recommends "$@" </dev/null >"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || tail -n 20 "$log" >&2
  rm -f "$log"
  return "$status"
}

# Installs what is missing of the named packages, or says what to install and ends.
need_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt here: this needs the equivalents of: $*"
    return
  fi
  local missing
  read -r -a missing <<<"$(missing_packages "$@")"
  [ ${#missing[@]} -gt 0 ] || return 0
  find_root || die 4 "these packages are missing and there is neither root nor sudo to install them. Run:
  apt-get install ${missing[*]}"
  title "Installing ${missing[*]}"
  apt_install "${missing[@]}" || die 4 "apt-get could not install: ${missing[*]}"
}

# The same, but going on without them: for stages that may be skipped.
want_packages() {
  local missing
  read -r -a missing <<<"$(missing_packages "$@")"
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null && find_root || return 0
  title "Installing ${missing[*]}"
  apt_install "${missing[@]}" || say "going on without: ${missing[*]}"
}

# Puts nvcc on the PATH where the toolkit lies in its usual place, and its libraries where programs look last. Fails
# where there is none.
find_nvcc() {
  local bin libraries
  if ! command -v nvcc >/dev/null; then
    for bin in ${CUDA_HOME:+"$CUDA_HOME/bin"} ${CUDA_PATH:+"$CUDA_PATH/bin"} /usr/local/cuda/bin; do
      [ ! -x "$bin/nvcc" ] || { export PATH="$bin:$PATH"; break; }
    done
  fi
  command -v nvcc >/dev/null || return 1
  libraries=${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}/lib64
  [ ! -d "$libraries" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
}

# configure FOLDER OPTION...: sets up a build folder once, afresh where the options or the compilers have changed.
# A folder that somebody else set up keeps its other options.
configure() {
  local folder=$1 wanted
  shift
  wanted="$* CXX=${CXX:-} nvcc=$(command -v nvcc || true) root=$root"
  if [ ! -f "$folder/.configured" ]; then
    if [ -f "$folder/build.ninja" ]; then
      set_up "$folder" --reconfigure "$@"
      return
    fi
  elif [ -f "$folder/build.ninja" ] && [ "$(cat "$folder/.configured")" = "$wanted" ]; then
    return 0
  else
    rm -rf "$folder"
  fi
  set_up "$folder" "$@" && printf '%s' "$wanted" >"$folder/.configured"
}

# Quiet unless it fails; Meson keeps its own log.
set_up() {
  local folder=$1 log status=0
  shift
  log=$(mktemp)
  "${meson[@]}" setup "$folder" "$@" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || tail -n 30 "$log" >&2
  rm -f "$log"
  return "$status"
}
meson=(meson)
ninja=(ninja)

# Points the build at what tools/fetch_deps unpacked.
use_deps() {
  [ -d .deps ] || return 0
  local libraries=$root/.deps/usr/lib/x86_64-linux-gnu
  export PKG_CONFIG_PATH="$libraries/pkgconfig:$root/.deps/usr/share/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
  export PATH="$PATH:$root/.deps/bin"
}

# Finds meson and ninja as programs or, where only a python has them, beside or inside that python.
find_meson() {
  local scripts
  scripts=$(python3 -c 'import sysconfig; print(sysconfig.get_path("scripts"))' 2>/dev/null) || scripts=
  [ -z "$scripts" ] || export PATH="$PATH:$scripts"
  command -v ninja >/dev/null || die 4 "needs ninja; python3 has none among its programs either"
  if ! command -v meson >/dev/null; then
    python3 -c 'import mesonbuild' 2>/dev/null || die 4 "needs meson, as a program or as a module of python3"
    meson=(python3 -m mesonbuild.mesonmain)
  fi
}

# Whether git tracks this tree (it may be an unpacked archive).
in_git() { git -C "$root" -c safe.directory="$root" ls-files --error-unmatch meson.build >/dev/null 2>&1; }
git_here() { git -C "$root" -c safe.directory="$root" "$@"; }
