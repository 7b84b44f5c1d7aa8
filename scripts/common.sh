# Sourced by the scripts next to it: finds Python, installs the lock files in .venv, builds from the sources.
# Needs only bash and Python 3.11 or newer with its venv module.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
unset PYTHONHOME PYTHONPATH PYTHONSAFEPATH

# say TEXT: a line of progress on stderr, with the seconds since the start of the script.
say() { printf '[%3d s] %s\n' "$SECONDS" "$*" >&2; }

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 3
}

# Ctrl-C ends the script. pip ends by itself then, and without the trap bash would go on as after a failure of pip.
trap 'exit 130' INT
scratch= # a folder that the end of the script removes
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT

# Prints the first Python that is new enough and can create environments. PYTHON=... sets the candidates.
find_python() {
  local candidate bare=
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || continue
    if "$candidate" -c 'import ensurepip, venv' 2> /dev/null; then
      command -v "$candidate"
      return
    fi
    bare=${bare:-$candidate}
  done
  [ -z "$bare" ] || fail "$bare cannot make environments: its venv module is missing. On Debian or Ubuntu:
    apt-get install $("$bare" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  fail "Python 3.11 or newer is needed${PYTHON:+, and PYTHON=$PYTHON is not}. On Debian 12, Ubuntu 24.04 or newer:
    apt-get install python3 python3-venv"
}

# digest FILE: prints a digest of the file's bytes.
digest() {
  "$venv/bin/python" -I -c 'import hashlib, pathlib, sys
print(hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).hexdigest())' "$1"
}

# Stamp files in .venv record the inputs it was made from. An installation removes its stamp first: if it is interrupted,
# no stamp vouches for what it has left.
stamped() { [ "$(cat "$venv/.stamp-$1" 2> /dev/null)" = "$2" ]; }
stamp() { printf '%s\n' "$2" > "$venv/.stamp-$1"; }
unstamp() { rm -f "$venv/.stamp-$1"; }

# With flock, only one script at a time changes .venv. Call `unlock_venv` before starting a long-running process.
lock_venv() {
  exec 9< "$root"
  if command -v flock > /dev/null && ! flock --nonblock 9; then
    say "waiting: another script is making .venv"
    flock 9
  fi
}
unlock_venv() { exec 9<&-; }

# Whether .venv is on a system with musl, such as Alpine.
on_musl() { "$venv/bin/python" -I -c 'import sys, sysconfig; sys.exit("musl" not in (sysconfig.get_config_var("HOST_GNU_TYPE") or ""))'; }

# locked LOCKFILE: prints the lock file; on musl without RE2, which has no wheels for it (docs/installation.md).
locked() {
  if on_musl; then awk '/^[^ #]/ { skip = /^google-re2==/ } !skip' "$root/$1"; else cat "$root/$1"; fi
}

# Prints what takes time of what pip prints: downloads of a megabyte or more, and the installation.
downloads() {
  local line
  while IFS= read -r line; do
    case $line in
      *Downloading\ *\ [MG]B\)) printf '  downloading %s\n' "${line#*Downloading }" ;;
      Installing\ *) printf '  installing the packages\n' ;;
    esac
  done
}

# need_venv LOCKFILE...: makes .venv work, with the packages of the lock files. A moved or copied .venv is recreated.
need_venv() {
  local lock wanted python
  [ ! -L "$venv" ] || fail "$venv is a link: what it leads to would be changed. Remove the link"
  if ! stamped home "$root" || ! "$venv/bin/python" -I -c 'import pip' 2> /dev/null; then
    python=$(find_python) || exit
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" || fail "could not make $venv"
    stamp home "$root"
  fi
  for lock in "$@"; do
    wanted=$(digest "$root/$lock")
    if stamped "$lock" "$wanted"; then continue; fi
    locked "$lock" > "$venv/$lock"
    install_lock "$venv/$lock" || fail "pip could not install what $lock names"
    stamp "$lock" "$wanted"
  done
}

# venv_install ...: installs in .venv. Bytecode is written when a module is first imported, since most modules never are.
venv_install() { "$venv/bin/python" -m pip install --quiet --no-compile "$@"; }

# install_package ...: installs the package. Version 0.1.0 was named logserver: duolog has the same files, and the old
# entry points would stay.
install_package() {
  [ -e "$venv/.stamp-package" ] || remove_remains
  unstamp package
  if compgen -G "$venv/lib/python3*/site-packages/logserver-*.dist-info" > /dev/null; then
    "$venv/bin/python" -m pip uninstall --quiet --yes logserver
  fi
  venv_install --no-deps --force-reinstall "$@"
}

# remove_remains: removes what an interrupted installation of the package has left. pip removes only files that it has
# recorded, and a compiled module that stays would be imported in place of its newer source.
remove_remains() {
  local packages
  for packages in "$venv"/lib/python3*/site-packages; do
    rm -rf "$packages"/{api,logserver,storage} "$packages"/logserver__mypyc.*.so "$packages"/duolog-*.dist-info "$packages"/"~"*
  done
}

# install_lock LOCKFILE: downloads first, so that the time of the downloads is known, then installs.
install_lock() {
  local began=$SECONDS result=0
  if compgen -G "$venv/.stamp-*.lock" > /dev/null; then # most of its packages are installed: nothing is to be measured
    say "installing what ${1##*/} names"
    unstamp "${1##*/}"
    "$venv/bin/python" -m pip install --no-compile --progress-bar off --timeout 60 --require-hashes -r "$1" | downloads >&2
    return
  fi
  scratch=$(mktemp -d)
  say "downloading what ${1##*/} names; what pip has in its cache is not downloaded again"
  if "$venv/bin/python" -m pip download --progress-bar off --timeout 60 --no-deps --require-hashes --dest "$scratch" -r "$1" |
    downloads >&2; then
    say "downloaded $(du -sh "$scratch" | cut -f1) in $((SECONDS - began)) s; installing"
    began=$SECONDS
    # A package without a wheel for this platform is built, and its build needs the index.
    venv_install --no-index --find-links "$scratch" --no-deps --require-hashes -r "$1" 2> /dev/null ||
      venv_install --timeout 60 --require-hashes -r "$1" || result=$?
    say "installed in $((SECONDS - began)) s"
  else
    result=1
  fi
  rm -rf "$scratch"
  return "$result"
}

compiled_wheel() { "$venv/bin/python" -I "$root/scripts/compiled_wheel.py" "$1" "$root"; }

# copy_sources DIR: copies the sources. A build uses the copy, so no files of an earlier build get into it.
copy_sources() {
  compiled_wheel sources | tar -C "$root" -cf - -T - | tar -C "$1" -xf -
}

# Makes sure that the package installed in .venv is that of the current sources: compiled if there is such a wheel, else
# plain Python, and a compiled wheel is made in the background for the next start. LOGSERVER_PURE=1: always plain;
# LOGSERVER_BACKGROUND_BUILD=0: no build.
need_package() {
  local wanted wheel
  wanted=$(compiled_wheel key)
  exec 8< "$venv/pyvenv.cfg" # a command that runs from .venv keeps a shared lock: see is_free
  if [ "${LOGSERVER_PURE:-}" = 1 ]; then
    stamped package "$wanted plain" || install_plain "$wanted"
  elif ! stamped package "$wanted compiled"; then
    if wheel=$(compiled_wheel find) && is_free "$wanted" && install_wheel "$wanted" "$wheel"; then
      say "logserver runs compiled"
    else
      stamped package "$wanted plain" || install_plain "$wanted"
      [ -n "$wheel" ] || say "$(compiled_wheel build)"
    fi
  fi
  if command -v flock > /dev/null; then flock --shared 8; fi
}

# is_free DIGEST: whether the compiled package may replace the plain one of the same sources. Not while a process runs
# the plain one: modules that it loads later would be compiled, and the modules before them are not.
is_free() {
  if ! stamped package "$1 plain" || ! command -v flock > /dev/null || flock --nonblock 8; then return; fi
  say "logserver runs as plain Python: another command runs from .venv, so the compiled build is installed later"
  return 1
}

install_wheel() { # DIGEST WHEEL
  say "installing ${2##*/}"
  if install_package --no-index "$2"; then
    stamp package "$1 compiled"
  else
    say "$2 could not be installed: remove it"
    return 1
  fi
}

install_plain() { # DIGEST
  local result=0
  say "installing logserver as plain Python"
  scratch=$(mktemp -d)
  copy_sources "$scratch"
  LOGSERVER_PURE=1 install_package --no-build-isolation "$scratch" || result=$?
  rm -rf "$scratch"
  [ "$result" = 0 ] || fail "the package could not be installed"
  stamp package "$1 plain"
}
