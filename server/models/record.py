"""Where a model's files came from, and what they were: `source.json` in its folder."""

from pathlib import Path

import msgspec

from server.models.errors import ModelsError
from server.models.download import sha256

FILE = "source.json"


class SourceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    source: str
    "A repository on a hub, or the folder that was converted."
    revision: str = ""
    "The commit."
    quantization: str = ""
    "As it was converted here."
    files: dict[str, str] = {}
    "Name -> sha256."


def write_record(folder: Path, record: SourceRecord) -> None:
    """With the checksum of every file that the folder holds."""
    files = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != FILE}
    whole = msgspec.structs.replace(record, files=files)
    data = msgspec.json.format(msgspec.json.encode(whole), indent=2)
    (folder / FILE).write_bytes(data + b"\n")


def read_record(folder: Path) -> SourceRecord | None:
    """None: nobody wrote one. Raises ModelsError for one that cannot be read."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=SourceRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelsError(f"{path}: {error}") from error
