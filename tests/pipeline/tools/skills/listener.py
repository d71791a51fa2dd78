"""An announcer for tests of timers."""

import asyncio
from dataclasses import dataclass, field

from core.errors import EngineError


@dataclass
class Listener:
    """An announcer that records the announcements of each conversation. Nobody listens before
    `comes_at`."""

    comes_at: float = 0.0
    announcements: list[tuple[float, str, str]] = field(default_factory=list)
    fails: bool = False

    async def announce(self, conversation_id: str, text: str) -> bool:
        now = asyncio.get_running_loop().time()
        if self.fails:
            raise EngineError("tts", "fake")
        if now < self.comes_at:
            return False
        self.announcements.append((now, conversation_id, text))
        return True
