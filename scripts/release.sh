#!/usr/bin/env bash
# Builds what a release consists of into dist/: the wheel, and beside it the list of everything that
# `make run` installs with it, with licences and dependencies (an SBOM in CycloneDX's JSON).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

DIST="${DIST:-dist}"
CYCLONEDX="cyclonedx-bom>=7,<8"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
rm -rf build # what an earlier build left would be in the wheel
# An environment as `make run` makes it, from the lock: what is listed is what is installed.
VENV="$scratch/environment" GPU="${GPU:-0}" EDITABLE=0 scripts/install.sh
"$scratch/environment/bin/python" -m pip wheel --disable-pip-version-check --quiet --no-deps \
  --no-build-isolation --wheel-dir "$scratch" .
wheel="$(basename "$scratch"/earshot_server-*.whl)"
version="$(cut -d - -f 2 <<<"$wheel")"

"${PYTHON:-python3}" -m venv "$scratch/tools"
"$scratch/tools/bin/python" -m pip install --disable-pip-version-check --quiet "$CYCLONEDX"
"$scratch/tools/bin/cyclonedx-py" environment --pyproject pyproject.toml --mc-type application \
  --output-reproducible --validate --of JSON \
  --output-file "$scratch/earshot-server-$version.cdx.json" "$scratch/environment/bin/python"

mkdir -p "$DIST"
mv "$scratch/$wheel" "$scratch/earshot-server-$version.cdx.json" "$DIST"
(cd "$DIST" && sha256sum "$wheel" "earshot-server-$version.cdx.json" >"earshot-server-$version.sha256")
echo "$DIST has $wheel, earshot-server-$version.cdx.json and their SHA-256."
