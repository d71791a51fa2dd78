"""Deletion of a conversation by the page."""

import pytest

from tests.web.client import Client, with_client
from web.conversations import conversation_routes

pytestmark = pytest.mark.live


def test_a_conversation_is_forgotten_by_its_id() -> None:
    forgotten: list[str] = []

    async def use(client: Client) -> None:
        answer = await client.delete("/earshot/conversations/page_1")
        assert (answer.status, await answer.read()) == (204, b"")

    with_client(conversation_routes(forgotten.append), use)
    assert forgotten == ["page_1"]
