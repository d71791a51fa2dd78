#!/usr/bin/env bash
# Puts Earshot and what it needs into a virtual environment. `make`, .ci/run and the Dockerfile
# all install through this file, so what works in one works in the others.
#
#   VENV    where the environment is or will be made   (default .venv)
#   PYTHON  the interpreter to make it with            (default: the first >= 3.11 on PATH)
#   EXTRAS  comma separated extras of pyproject.toml   (default none; e.g. dev,mic)
#   GPU     auto: add the CUDA libraries when nvidia-smi lists a GPU; 1: always; 0: never
#   EDITABLE  1: run from this folder (default); 0: copy into the environment (images)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV="${VENV:-.venv}"
EXTRAS="${EXTRAS:-}"
GPU="${GPU:-auto}"
EDITABLE="${EDITABLE:-1}"
OLDEST="3.11"

fail() {
  echo "earshot install: $*" >&2
  exit 1
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

mkdir -p "$(dirname "$VENV")"
if [[ ! -x "$VENV/bin/python" ]] || ! is_new_enough "$VENV/bin/python"; then
  interpreter="$(pick_python)"
  "$interpreter" -m venv --clear "$VENV" >/dev/null 2>&1 \
    || fail "'$interpreter -m venv $VENV' failed; on Debian and Ubuntu: apt install python3-venv"
fi

# Two `make` at once must not install into one environment at once; the second then finds it done.
if command -v flock >/dev/null; then
  exec 9>"$VENV/.earshot-installing"
  flock 9
fi

# The first line says what the environment was made from; the others are its extras. Asking again
# for what is already there costs one hash; asking for more keeps what was there.
stamp="$VENV/.earshot-installed"
made_from="$(cat pyproject.toml scripts/install.sh | cksum) $EDITABLE $PWD"
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
requirement=".${extras:+[$(paste -sd, - <<<"$extras")]}"
echo "Installing Earshot into $VENV ($requirement); the first time takes a minute or two."
"$VENV/bin/python" -m pip install --disable-pip-version-check --quiet --upgrade pip
target=("$requirement")
if [[ "$EDITABLE" == 1 ]]; then
  target=(--editable "$requirement")
fi
"$VENV/bin/python" -m pip install --disable-pip-version-check ${quiet[@]+"${quiet[@]}"} \
  --upgrade-strategy only-if-needed "${target[@]}"
{
  echo "$made_from"
  echo "$extras"
} >"$stamp.new"
mv "$stamp.new" "$stamp"
