#!/usr/bin/env bash
# Runs the tests that a marker expression chooses: on several workers at once, then by themselves
# those marked `alone`, which measure time (docs/adr/0051).
#   scripts/test.sh "not real and not soak" [-k jitter ...]
# VENV= is the environment that has pytest, JOBS= the number of workers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chosen="$1"
shift
python="${VENV:-.venv}/bin/python"
# Three more than there are cores: many tests wait for sound or a process. Each takes up to 1 GB.
cores="$(getconf _NPROCESSORS_ONLN)"
jobs="${JOBS:-$((cores < 8 ? cores + 3 : 8))}"

tally="$(mktemp)"
trap 'rm -f "$tally"' EXIT
export TESTS_TRIED_AGAIN="$tally" # counted over both runs

# Images of Python often set this. Then each of some hundred processes would compile all our modules.
unset PYTHONDONTWRITEBYTECODE

NOTHING_CHOSEN=5 # pytest's exit status
# Threads of several workers would take the cores from each other.
together=0
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
  "$python" -m pytest -n "$jobs" --dist loadscope -m "($chosen) and not alone" "$@" || together=$?
alone=0
"$python" -m pytest -m "($chosen) and alone" "$@" || alone=$?

if ((together == NOTHING_CHOSEN)); then
  exit "$alone"
elif ((together == 0 && alone == NOTHING_CHOSEN)); then
  exit 0
fi
exit $((together ? together : alone))
