"""Turns recordings into codes, one .npy file for each. It can be run again at any time."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from core.errors import ConfigError, EarshotError
from engines.base.codec import CodecModel, Samples
from engines.codec.items import SAMPLE_SCALE
from media.files.decode import FileLimits, decode_file
from server.commands.audio.recordings import MAX_FILE_BYTES, Recording, UnreadableInput

LIMITS = FileLimits(MAX_FILE_BYTES, max_duration_s=2 * 3600)
"Limits of one recording. Two hours of sound take 1 GB while they are encoded."

Outcome = Literal["made", "there already", "failed"]
"Outcome of a recording."


class RecordingTokenizer:
    """Encodes recordings in batches, and writes the codes of each to a file of its own.

    A file is written under another name and then renamed, so one that is there is whole.
    """

    def __init__(self, codec: CodecModel, model: str, codebooks: int, out: Path) -> None:
        """`model`: name of the codec, which becomes a part of the files' names. Raises ConfigError
        if it lacks that number of codebooks."""
        if codebooks not in codec.info.codebooks:
            allowed = ", ".join(map(str, codec.info.codebooks))
            raise ConfigError(f"--codebooks {codebooks}: {model} has {allowed}")
        self._codec, self._codebooks, self._out = codec, codebooks, out
        self._suffix = f".{model}-{codebooks}.npy"
        self._waiting: list[tuple[Path, Samples]] = []
        "Files to write, with the sound of their recordings."
        self.outcomes: Counter[Outcome] = Counter()

    def run(self, found: Iterable[Recording | UnreadableInput]) -> None:
        """Encodes all recordings that have no codes yet. Those that cannot be read are named on
        standard error."""
        for entry in found:
            if isinstance(entry, UnreadableInput):
                self._fail(entry.name, entry.reason)
                continue
            target = self._out / f"{entry.name}{self._suffix}"
            if target.exists():
                self.outcomes["there already"] += 1
                continue
            try:
                pcm = decode_file(entry.source, self._codec.info.rate_hz, LIMITS)
            except (EarshotError, OSError) as error:
                self._fail(str(entry.name), str(error))
                continue
            self._waiting.append((target, pcm.astype(np.float32) / np.float32(SAMPLE_SCALE)))
            if len(self._waiting) >= self._codec.info.max_batch:
                self._encode()
        self._encode()

    def _encode(self) -> None:
        clips = [sound for _, sound in self._waiting]
        for (target, _), codes in zip(
            self._waiting, self._codec.encode(clips, self._codebooks), strict=True
        ):
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.partial")
            with partial.open("wb") as file:
                np.save(file, codes, allow_pickle=False)
            partial.replace(target)
            self.outcomes["made"] += 1
        self._waiting.clear()

    def _fail(self, name: str, reason: str) -> None:
        print(f"{name}: {reason}", file=sys.stderr, flush=True)
        self.outcomes["failed"] += 1
