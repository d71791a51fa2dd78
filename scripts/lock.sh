#!/usr/bin/env bash
# Writes requirements.lock: which release of each package, with the hashes of its files, `make run`
# and `make test` install. One file for every Python from 3.11 on, x86-64 and aarch64; it names no
# package index, so it installs from whichever pip is set up for. `make lock` keeps what still
# fits pyproject.toml, `make lock ARGS=--upgrade` takes the newest releases.
#
# It also pins the base image of the Dockerfile to its digest, if skopeo or docker can ask for it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

UV="uv>=0.13,<0.14"
LOCK="requirements.lock"
# torch is left out: which build of it is right depends on the machine, and it is large.
EXTRAS=(bench clip dev esphome gpu kokoro mcp mic mqtt piper pocketsphinx postgresql sherpa wake)

tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check "$UV"

# pip and setuptools install everything else, so they are locked like everything else.
printf 'pip\nsetuptools\n' >"$tools/installers.in"
"$tools/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 \
  --generate-hashes --no-header --no-annotate "${EXTRAS[@]/#/--extra=}" "$@" \
  --output-file "$LOCK" pyproject.toml "$tools/installers.in"
if grep -n -E '://|--(extra-)?index-url|--find-links' "$LOCK"; then
  echo "$LOCK names a place to install from; see above" >&2
  exit 1
fi

image="$(sed -n 's/^FROM \(python:[^ @]*\).*/\1/p' Dockerfile | head -n 1)"
digest="$(skopeo inspect --format '{{.Digest}}' "docker://$image" 2>/dev/null \
  || docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image" 2>/dev/null \
  || true)"
if [[ "$digest" =~ ^sha256:[0-9a-f]{64}$ ]]; then
  sed -i "s|^FROM python:[^ ]*|FROM $image@$digest|" Dockerfile
  echo "$image is $digest"
else
  echo "No registry told the digest of $image; the Dockerfile keeps what it has."
fi
