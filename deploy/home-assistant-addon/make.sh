#!/usr/bin/env bash
# Puts the add-on for Home Assistant together: its files, and the sources that its image is built
# from. Copy the folder to /addons/earshot on the machine of Home Assistant; it then appears among
# the local add-ons.
#
#   deploy/home-assistant-addon/make.sh FOLDER
set -euo pipefail

target="${1:?usage: make.sh FOLDER}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
if [[ -e "$target" ]]; then
  echo "make.sh: $target exists already" >&2
  exit 1
fi

mkdir -p "$target/source"
cp "$here"/{config.json,run.py,DOCS.md} "$target"
cp -r "$here/translations" "$target"
cp "$root/CHANGELOG.md" "$target"
cp "$root/web/static/app/icon_192.png" "$target/icon.png"
cp "$root/Dockerfile" "$target/Dockerfile"
# The Dockerfile copies these from its folder; Home Assistant builds with the add-on's.
sed -i -E 's|^COPY ([a-z_]+)/ ([a-z_]+)/$|COPY source/\1/ \2/|;
  s|^COPY pyproject.toml requirements.lock README.md LICENSE \./$|COPY source/pyproject.toml source/requirements.lock source/README.md source/LICENSE ./|' \
  "$target/Dockerfile"
cat >>"$target/Dockerfile" <<'DOCKERFILE'

# Home Assistant's part: root owns /data and /config there.
COPY run.py /run.py
USER 0:0
CMD ["python", "/run.py"]
DOCKERFILE
git -C "$root" archive HEAD -- pyproject.toml requirements.lock README.md LICENSE scripts core media \
  engines firmware_protocol serving pipeline signaling devices web server bench \
  | tar -x -C "$target/source"
