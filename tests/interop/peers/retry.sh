# Sourced by the scripts of the folders beside it.
# retry COMMAND...: up to three times, for what is downloaded.
retry() {
  local pause
  for pause in 15 60; do
    "$@" && return
    echo "failed, once more in $pause s: $*" >&2
    sleep "$pause"
  done
  "$@"
}
