#!/usr/bin/env bash
# Checks the page's JavaScript and styles: eslint, prettier, TypeScript over JSDoc types. The tools
# come from npm, in the releases and with the hashes of scripts/javascript/package-lock.json. A
# machine without Node skips this; CI (EARSHOT_CI_STRICT=1) does not.
#
# Arguments: none, or `--fix`, which formats and repairs what can be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TOOLS=scripts/javascript
OLDEST="20.19" # eslint's

skip() {
  echo "check_page: $*, so the page's JavaScript is not checked" >&2
  [[ "${EARSHOT_CI_STRICT:-}" != 1 ]] || exit 1
  exit 0
}

command -v node >/dev/null || skip "Node is missing"
command -v npm >/dev/null || skip "npm is missing"
found="$(node --print process.versions.node)"
[[ "$(printf '%s\n' "$OLDEST" "$found" | sort --version-sort | head -n 1)" == "$OLDEST" ]] \
  || skip "Node $found is older than $OLDEST"

# npm leaves a copy of the lock file behind; as long as it is newer than ours, nothing changed.
if [[ ! $TOOLS/node_modules/.package-lock.json -nt $TOOLS/package-lock.json ]]; then
  npm ci --prefix "$TOOLS" --no-audit --no-fund --loglevel=error >/dev/null
fi

bin="$TOOLS/node_modules/.bin"
lint=(--config "$TOOLS/eslint.config.js")
format=(--config "$TOOLS/package.json" --log-level warn)
if [[ "${1:-}" == --fix ]]; then
  lint+=(--fix)
  format+=(--write)
else
  format+=(--check)
fi
"$bin/eslint" "${lint[@]}" web/static tests/web
"$bin/prettier" "${format[@]}" 'web/static/**/*.{js,css}' 'tests/web/**/*.js' "$TOOLS/*.js*"
"$bin/tsc" --project "$TOOLS"
