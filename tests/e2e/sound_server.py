"""A PulseAudio of its own, for browsers that take their microphone from the system."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import require

MICROPHONE = "microphone"
"Name of the sink whose sound the microphone hears."

TIMEOUT_S = 30.0

IDLE_S = 120
"The daemon ends this long after its last client, so that none stays if the tests are killed."

SCRIPT = f"""
load-module module-native-protocol-unix auth-anonymous=1
load-module module-null-sink sink_name={MICROPHONE} rate=48000
load-module module-null-sink sink_name=speaker rate=48000
set-default-source {MICROPHONE}.monitor
set-default-sink speaker
"""


@contextmanager
def sound_server() -> Iterator[Mapping[str, str]]:
    """Runs PulseAudio with a microphone and a speaker; yields the environment of its clients.

    `paplay --device=microphone FILE` speaks into the microphone. Nothing is heard on this machine.
    """
    require(shutil.which("pulseaudio") and shutil.which("paplay"), "PulseAudio")
    # The path of a Unix socket has 107 bytes at most, so it is not below `tmp_path`.
    with TemporaryDirectory() as folder:
        script = Path(folder, "script.pa")
        script.write_text(SCRIPT)
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "XDG_CONFIG_HOME": folder}
        _pulseaudio(environment, "--daemonize", f"--exit-idle-time={IDLE_S}", "-n", f"-F{script}")
        try:
            yield environment
        finally:
            _pulseaudio(environment, "--kill")


def _pulseaudio(environment: Mapping[str, str], *arguments: str) -> None:
    """Returns when the daemon is ready, or has ended."""
    command = ["pulseaudio", *arguments]
    subprocess.run(command, env=environment, check=True, timeout=TIMEOUT_S)
