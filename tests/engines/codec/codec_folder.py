"""A folder that looks like an EnCodec, for tests that never load its weights."""

import json
from pathlib import Path

from engines.codec.settings import CONFIG_FILE, WEIGHTS_FILE

CONFIG = {"model_type": "encodec", "codebook_size": 64, "target_bandwidths": [0.9, 1.8]}
"Four codebooks of 6 bits, at 75 frames per second."


def write_codec_folder(folder: Path, **changes: object) -> Path:
    """Writes config.json with `changes`, and a file without weights. Returns the folder."""
    folder.mkdir(parents=True)
    (folder / CONFIG_FILE).write_text(json.dumps(CONFIG | changes), encoding="utf-8")
    (folder / WEIGHTS_FILE).write_bytes(b"")
    return folder
