#!/usr/bin/env bash
# Puts Earshot and what it needs into a virtual environment. `make`, .ci/run and the Dockerfile
# all install through this file, so what works in one works in the others.
#
#   VENV    where the environment is or will be made   (default .venv)
#   PYTHON  the interpreter to make it with            (default: the first >= 3.11 on PATH)
#   EXTRAS  comma separated extras of pyproject.toml   (default none; e.g. dev,mic)
#   GPU     auto: add the CUDA libraries when nvidia-smi lists a GPU; 1: always; 0: never
#   EDITABLE  1: run from this folder (default); 0: copy into the environment (images)
#   LOCK    1: the releases and hashes of requirements.lock (default); 0: the newest that fit
#           pyproject.toml, for a machine or a Python that the lock does not know
#
# Arguments: none, or `serve OPTIONS`, the server that is started next: then its port must be free
# before anything is fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV="${VENV:-.venv}"
EXTRAS="${EXTRAS:-}"
GPU="${GPU:-auto}"
EDITABLE="${EDITABLE:-1}"
LOCK="${LOCK:-1}"
OLDEST="3.11"

fail() {
  echo "earshot install: $*" >&2
  exit 1
}

# Says why venv or pip ($1) failed, from what it said ($2): the cause is seldom its last line.
explain() {
  printf '%s\n' "$2" | tail -n 20 | sed 's/^/  /' >&2
  fail "$(printf '%s\n' "$2" | "$interpreter" -m server.commands.engines.pip "$1")"
}

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

pick_python() {
  local candidate
  if [[ -n "${PYTHON:-}" ]]; then
    is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a working Python >= $OLDEST"
    echo "$PYTHON"
    return
  fi
  for candidate in python3 python3.11 python3.12 python3.13 python3.14 python; do
    if is_new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python >= $OLDEST found on PATH; install one or say PYTHON=/path/to/python3.11"
}

wants_gpu() {
  case "$GPU" in
    1) return 0 ;;
    0) return 1 ;;
    auto) [[ "$(nvidia-smi -L 2>/dev/null || true)" == GPU* ]] ;;
    *) fail "GPU=$GPU is not one of auto, 0, 1" ;;
  esac
}

# The wheels of the wake words are for glibc 2.35 (of 2022) and newer, on these two processors.
runs_wake_words() {
  local libc
  libc="$(getconf GNU_LIBC_VERSION 2>/dev/null)" || return 1
  [[ "$(uname -m)" =~ ^(x86_64|aarch64)$ ]] || return 1
  [[ "$(printf '%s\n2.35\n' "${libc#glibc }" | sort -V | head -n 1)" == 2.35 ]]
}

# True if PocketSphinx must be compiled, and can be. pyproject.toml asks for it where the index has a
# wheel of it: CPython 3.11 and 3.13, and 3.12 on 64-bit Intel.
compiles_pocketsphinx() {
  { command -v cc && command -v c++; } >/dev/null || return 1
  "$1" -c 'from os.path import exists; from platform import machine; from sys import version_info
from sysconfig import get_path
has_wheel = version_info[1] in (11, 13) or (version_info[1] == 12 and machine() == "x86_64")
raise SystemExit(has_wheel or not exists(get_path("include") + "/Python.h"))'
}

# One extra per line, sorted, no doubles.
as_lines() {
  tr ',' '\n' | sed 's/[[:space:]]//g' | sed '/^$/d' | sort -u
}

if wants_gpu; then
  EXTRAS="$EXTRAS,gpu"
fi
if runs_wake_words; then
  EXTRAS="$EXTRAS,wake"
fi

interpreter="$VENV/bin/python"
if [[ ! -x "$interpreter" ]] || ! is_new_enough "$interpreter"; then
  interpreter="$(pick_python)"
fi
if compiles_pocketsphinx "$interpreter"; then
  EXTRAS="$EXTRAS,pocketsphinx"
fi
if [[ "${1:-}" == serve ]]; then
  "$interpreter" -m server.net.port_check "${@:2}"
fi

# An environment that was interrupted or ran out of space has no pip; then it is made anew.
is_whole() {
  [[ "$interpreter" == "$VENV/bin/python" ]] \
    && { [[ -f "$VENV/.earshot-installed" ]] || "$interpreter" -c 'import pip' 2>/dev/null; }
}

if ! is_whole; then
  interpreter="$(pick_python)"
  # In two steps: venv says of a pip that fails only that it failed.
  said="$("$interpreter" -m venv --clear --without-pip "$VENV" 2>&1)" || explain venv "$said"
  said="$("$VENV/bin/python" -m ensurepip --upgrade --default-pip 2>&1)" || explain venv "$said"
  interpreter="$VENV/bin/python"
fi

# Two `make` at once must not install into one environment at once; the second then finds it done.
if command -v flock >/dev/null; then
  exec 9>"$VENV/.earshot-installing"
  flock 9
fi

# The first line says what the environment was made from; the others are its extras. Asking again
# for what is already there costs one hash; asking for more keeps what was there.
stamp="$VENV/.earshot-installed"
made_from="$(cat pyproject.toml requirements.lock scripts/install.sh | cksum) $EDITABLE $LOCK $PWD"
wanted="$(as_lines <<<"$EXTRAS")"
present=""
if [[ -f "$stamp" ]]; then
  present="$(tail -n +2 "$stamp" | as_lines)"
  missing="$(comm -23 <(printf '%s\n' "$wanted" | sed '/^$/d') <(printf '%s\n' "$present"))"
  if [[ "$(head -n 1 "$stamp")" == "$made_from" && -z "$missing" ]]; then
    exit 0
  fi
fi
extras="$(printf '%s\n%s\n' "$wanted" "$present" | as_lines)"

quiet=(--quiet)
if [[ -t 1 ]]; then
  quiet=() # a person sees pip's progress bars, a log does not
fi
extras="$(paste -sd, - <<<"$extras")"
requirement=".${extras:+[$extras]}"

# pip's progress goes to the terminal; what it complains about is kept, to be explained.
exec 3>&1
pip_install() {
  local said
  said="$("$interpreter" -m pip --disable-pip-version-check --no-input install \
    ${quiet[@]+"${quiet[@]}"} --retries 2 --upgrade-strategy only-if-needed "$@" 2>&1 >&3)" \
    || explain pip "$said"
}

echo "Installing Earshot into $VENV ($requirement); the first time takes a minute or two."
# Until the index was found to have another `earshot`, this was the name of ours.
rm -rf earshot.egg-info
if compgen -G "$VENV/lib/python3*/site-packages/earshot-*.dist-info" >/dev/null; then
  "$interpreter" -m pip --disable-pip-version-check --quiet uninstall --yes earshot
fi
target=("$requirement")
if [[ "$EDITABLE" == 1 ]]; then
  target=(--editable "$requirement")
fi
if [[ "$LOCK" == 1 ]]; then
  # First pip itself, since an older one cannot take hashes from a constraint, and setuptools,
  # which builds Earshot, so that nothing is fetched beside the lock to do it.
  pip_install --upgrade --require-hashes --requirement /dev/stdin \
    <<<"$(awk '/^(pip|setuptools)==/ { on = 1 } on; !/\\$/ { on = 0 }' requirements.lock)"
  locked="$("$interpreter" -m server.commands.lock_file locked "$extras")"
  free="$("$interpreter" -m server.commands.lock_file free "$extras")"
  pip_install --require-hashes --constraint requirements.lock \
    --requirement /dev/stdin <<<"$locked"
  if [[ -n "$free" ]]; then
    pip_install --requirement /dev/stdin <<<"$free"
  fi
  pip_install --no-deps --no-build-isolation "${target[@]}"
else
  pip_install --upgrade pip setuptools
  pip_install --no-build-isolation "${target[@]}"
fi
{
  echo "$made_from"
  tr ',' '\n' <<<"$extras"
} >"$stamp.new"
mv "$stamp.new" "$stamp"
