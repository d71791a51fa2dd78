"""Measured systems: Earshot with stub engines, and the bare servers."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from bench.capacity.cpu_affinity import CpuAssignment, on_core
from bench.server.own_server import OwnServer, own_program, own_server

Bare = Literal["stock", "media", "public", "quiet", "echo"]
"Kind of bare server, as `bench.capacity.bare_servers` explains."

MAX_SESSIONS = 1000
"More than are ever opened, for measurements that are not about the limit."


def configuration(*, answer_ms: int, is_deaf: bool, max_sessions: int = MAX_SESSIONS) -> str:
    """Returns the configuration as TOML.

    answer_ms: length of the audio of each answer. is_deaf: no voice activity detection.
    """
    lines = ["[server]", f"max_sessions = {max_sessions}"]
    for kind in ("asr", "llm", "tts"):
        lines += [f"[{kind}]", f'engine = "bench.server.stub_engines.{kind}"']
    lines += ["[tts.options]", f"tone_ms = {answer_ms}"]
    if is_deaf:
        lines += ["[vad]", 'engine = "bench.server.stub_engines.vad"']
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def earshot(cores: CpuAssignment, config: str) -> AsyncGenerator[OwnServer]:
    """Runs `earshot serve` on its core. Raises ServerStartError."""
    with TemporaryDirectory(prefix="earshot-capacity-") as folder:
        file = Path(folder) / "capacity.toml"
        file.write_text(config, encoding="utf-8")
        async with AsyncExitStack() as stack:
            with on_core(cores.server):
                server = await stack.enter_async_context(own_server(["--config", str(file)]))
            yield server


@asynccontextmanager
async def bare(cores: CpuAssignment, kind: Bare) -> AsyncGenerator[OwnServer]:
    """Runs one of `bench.capacity.bare_servers` on the same core. Raises ServerStartError."""
    async with AsyncExitStack() as stack:
        with on_core(cores.server):
            program = own_program(["-m", "bench.capacity.bare_servers", kind])
            server = await stack.enter_async_context(program)
        yield server
