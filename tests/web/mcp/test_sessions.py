"""Sessions of MCP clients: owners, limits and ends. In virtual time."""

import asyncio

import pytest

from core.access.named_key import NamedKey
from core.errors import OverloadedError
from tests.loop import run_virtual
from tests.pipeline.fakes import LoopClock
from tests.web.mcp.servers import ANNA, BEN, called_by
from web.mcp.sessions import IDLE_S, MAX_SESSIONS, MAX_SESSIONS_PER_KEY, McpSessions


def test_a_session_belongs_to_its_key() -> None:
    async def main() -> None:
        sessions = McpSessions(LoopClock())
        with called_by(ANNA):
            annas = sessions.begin("2025-11-25").id
            assert sessions.find(annas) is not None
        for other in (BEN, None):
            with called_by(other):
                assert sessions.find(annas) is None
                assert not sessions.end(annas)
        sessions.end_all_of(BEN)
        assert sessions.count == 1
        sessions.end_all_of(ANNA)
        assert sessions.count == 0

    run_virtual(main())


def test_a_key_with_many_sessions_loses_the_one_that_was_unused_longest() -> None:
    async def main() -> None:
        sessions = McpSessions(LoopClock())
        with called_by(ANNA):
            first, second, *_ = [sessions.begin("").id for _ in range(MAX_SESSIONS_PER_KEY)]
            sessions.find(first)
            sessions.begin("")
            assert sessions.count == MAX_SESSIONS_PER_KEY
            assert sessions.find(first) is not None
            assert sessions.find(second) is None

    run_virtual(main())


def test_a_full_server_keeps_a_place_for_the_owner_and_forgets_the_idle() -> None:
    async def main() -> None:
        sessions = McpSessions(LoopClock())
        for number in range(MAX_SESSIONS - 1):
            with called_by(NamedKey(f"key_{number // MAX_SESSIONS_PER_KEY}", "", ("talk",))):
                sessions.begin("")
        newcomer = called_by(NamedKey("key_new", "", ("talk",)))
        with newcomer, pytest.raises(OverloadedError, match="limit"):
            sessions.begin("")
        sessions.begin("")
        assert sessions.count == MAX_SESSIONS
        await asyncio.sleep(IDLE_S + 1)
        sessions.begin("")
        assert sessions.count == 1

    run_virtual(main())
