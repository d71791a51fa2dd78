"""What is measured: our server with engines that do nothing, and the bare ones beside it."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from bench.capacity.cpu_affinity import CpuAssignment, on_core
from bench.server.own_server import OwnServer, own_program, own_server

Bare = Literal["stock", "media", "quiet", "echo"]

MAX_SESSIONS = 1000
"More than are opened: where the limit is not what is measured."


def configuration(*, answer_ms: int, is_deaf: bool, max_sessions: int = MAX_SESSIONS) -> str:
    """TOML. `answer_ms`: of sound in each answer. `is_deaf`: no voice activity is looked for."""
    lines = ["[server]", f"max_sessions = {max_sessions}"]
    for kind in ("asr", "llm", "tts"):
        lines += [f"[{kind}]", f'engine = "bench.server.stub_engines.{kind}"']
    lines += ["[tts.options]", f"tone_ms = {answer_ms}"]
    if is_deaf:
        lines += ["[vad]", 'engine = "bench.server.stub_engines.vad"']
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def earshot(cores: CpuAssignment, config: str) -> AsyncGenerator[OwnServer]:
    """`earshot serve` on its core. Raises NotStarted."""
    with TemporaryDirectory(prefix="earshot-capacity-") as folder:
        file = Path(folder) / "capacity.toml"
        file.write_text(config, encoding="utf-8")
        async with AsyncExitStack() as stack:
            with on_core(cores.server):
                server = await stack.enter_async_context(own_server(["--config", str(file)]))
            yield server


@asynccontextmanager
async def bare(cores: CpuAssignment, kind: Bare) -> AsyncGenerator[OwnServer]:
    """One of `bench.capacity.bare_servers` on the same core. Raises NotStarted."""
    async with AsyncExitStack() as stack:
        with on_core(cores.server):
            program = own_program(["-m", "bench.capacity.bare_servers", kind])
            server = await stack.enter_async_context(program)
        yield server
