"""Renders clips to standard output, each in a process that has said nothing before: eSpeak's sound
depends on all that its process has said, and a test must not depend on the tests before it.

`python -m tests.espeak_process`: a line of JSON in (text, voice, words per minute), out four bytes
of length (little endian) and as much 16-bit PCM. A fork costs 3 ms, a fresh process 300.
"""

import json
import os
import struct
import sys

from core.audio import Pcm
from engines.tts.espeak.library import espeak_library


def speak(request: dict[str, str | int]) -> None:
    """Writes the answer in one piece; runs in the child."""
    parts: list[bytes] = []

    def sink(pcm: Pcm) -> bool:
        parts.append(pcm.tobytes())
        return True

    words_per_minute = request["words_per_minute"]
    assert isinstance(words_per_minute, int)
    espeak_library().synthesise(str(request["text"]), str(request["voice"]), words_per_minute, sink)
    sound = b"".join(parts)
    sys.stdout.buffer.write(struct.pack("<I", len(sound)) + sound)
    sys.stdout.buffer.flush()


def main() -> None:
    rate_hz = espeak_library().rate_hz  # loaded once, here, for all forks
    sys.stdout.buffer.write(struct.pack("<I", rate_hz))
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                speak(json.loads(line))
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"could not say {line!r}")


if __name__ == "__main__":
    main()
