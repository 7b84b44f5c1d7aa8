# Sourced by the scripts next to it: finds Python, installs the lock files in .venv, builds from the sources.
# Needs only bash and Python 3.11 or newer with its venv module.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
unset PYTHONHOME PYTHONPATH PYTHONSAFEPATH

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 3
}

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

# digest TEXT: prints a digest of TEXT and of the names and bytes of the files named on standard input.
digest() {
  "$venv/bin/python" -I -c '
import hashlib, pathlib, sys
known = hashlib.sha256(sys.argv[1].encode())
for name in sorted(sys.stdin.read().splitlines()):
    known.update(name.encode() + b"\0" + hashlib.sha256(pathlib.Path(name).read_bytes()).digest())
print(known.hexdigest())' "$1"
}

# Stamp files in .venv record the inputs it was made from.
stamped() { [ "$(cat "$venv/.stamp-$1" 2> /dev/null)" = "$2" ]; }
stamp() { printf '%s\n' "$2" > "$venv/.stamp-$1"; }

# With flock, only one script at a time changes .venv. Call `unlock_venv` before starting a long-running process.
lock_venv() {
  exec 9< "$root"
  if command -v flock > /dev/null && ! flock --nonblock 9; then
    echo "waiting: another script is making .venv" >&2
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
    echo "making .venv with $("$python" --version)" >&2
    "$python" -m venv --clear "$venv" || fail "could not make $venv"
    stamp home "$root"
  fi
  for lock in "$@"; do
    wanted=$(digest "" <<< "$root/$lock")
    if stamped "$lock" "$wanted"; then continue; fi
    echo "installing what $lock names" >&2
    locked "$lock" > "$venv/$lock"
    "$venv/bin/python" -m pip install --progress-bar off --timeout 60 --require-hashes -r "$venv/$lock" | downloads >&2 ||
      fail "pip could not install what $lock names"
    stamp "$lock" "$wanted"
  done
}

# Prints the files that a build reads, one per line.
source_files() {
  find "$root/logserver" "$root/storage" "$root/api" -name __pycache__ -prune -o -type f ! -name '*.so' -print
  find "$root/docs" -type f -name '*.md' -print
  printf '%s\n' "$root/pyproject.toml" "$root/setup.py" "$root/MANIFEST.in" "$root/README.md" "$root/LICENSE"
}

# copy_sources DIR: copies the sources. A build uses the copy, so no files of an earlier build get into it.
copy_sources() {
  source_files | sed "s|^$root/||" | tar -C "$root" -cf - -T - | tar -C "$1" -xf -
}

# Makes sure that the package installed in .venv is built from the current sources.
need_package() {
  local wanted copy
  wanted=$(source_files | digest "${LOGSERVER_PURE:-}${MYPYC_OPT_LEVEL:+O$MYPYC_OPT_LEVEL}")
  if stamped package "$wanted"; then return; fi
  echo "building logserver, compiled where a C compiler is found" >&2
  copy=$(mktemp -d)
  copy_sources "$copy"
  # Version 0.1.0 was named logserver: duolog has the same files, and the old entry points would stay.
  if compgen -G "$venv/lib/python3*/site-packages/logserver-*.dist-info" > /dev/null; then
    "$venv/bin/python" -m pip uninstall --quiet --yes logserver
  fi
  if ! "$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall "$copy"; then
    rm -rf "$copy"
    fail "the package could not be built"
  fi
  rm -rf "$copy"
  stamp package "$wanted"
}
