"""MCP servers with a few tools of a kitchen, each in its own process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.tools.mcp import McpServerSettings, McpToolProvider

KITCHEN = ("-m", "tests.pipeline.tools.mcp.kitchen_server")


@asynccontextmanager
async def running(*tools: McpToolProvider) -> AsyncIterator[None]:
    """Runs the tools as the server does: leaving cancels them, and waits for their ends."""
    async with asyncio.TaskGroup() as tasks:
        tasks_of = [tasks.create_task(one.run()) for one in tools]
        try:
            yield
        finally:
            for task in tasks_of:
                task.cancel()


@dataclass
class Kitchen:
    """The server of the official package, over each transport."""

    folder: Path
    port: int | None
    is_older: bool = False
    process: asyncio.subprocess.Process | None = None

    def settings(self) -> McpServerSettings:
        if self.port is not None:
            url = f"http://127.0.0.1:{self.port}"
            sse_url = f"{url}/sse" if self.is_older else ""
            return McpServerSettings(url=f"{url}/mcp", sse_url=sse_url)
        args = (*KITCHEN, str(self.folder))
        return McpServerSettings(
            command=sys.executable, args=args, env={"KITCHEN_KEY": "hush-hush"}
        )

    def tools(self) -> McpToolProvider:
        return McpToolProvider("kitchen", self.settings(), first_wait_s=0.05)

    async def open(self) -> None:
        """Starts the server, unless it uses stdio: then the client starts it."""
        if self.port is not None:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *KITCHEN,
                str(self.folder),
                str(self.port),
                *(["sse"] if self.is_older else []),
                stderr=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
            )

    async def close(self) -> None:
        if self.process is not None:
            if self.process.returncode is None:
                self.process.kill()
            await self.process.wait()

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def starts(self) -> list[int]:
        return [int(pid) for pid in (self.folder / "starts").read_text().split()]
