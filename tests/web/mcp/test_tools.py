"""The tools that callers are offered: by key, and as many calls at a time as there is room for."""

import asyncio
from collections.abc import Mapping

from tests.loop import run_virtual
from tests.web.mcp.servers import ANNA, BEN, House, called_by
from web.mcp.tools import MAX_CALLS


def _content(result: Mapping[str, object]) -> Mapping[str, object]:
    content = result["structuredContent"]
    assert isinstance(content, dict)
    return content


def test_a_key_sees_and_calls_the_tools_of_its_settings_alone() -> None:
    async def main() -> None:
        house = House(
            allow=frozenset({"lamps", "switch"}), tools_of_keys={"anna": ["lamps", "wait"]}
        )
        for key, names in (
            (ANNA, ["lamps"]),
            (BEN, ["lamps", "switch"]),
            (None, ["lamps", "switch"]),
        ):
            with called_by(key):
                assert [one["name"] for one in house.tools.listed()] == names
        with called_by(ANNA):
            assert not house.tools.has("switch")
            refused = await house.tools.call("switch", {"lamp": "shelf"})
        assert _content(refused)["error"] == "no_such_tool"
        assert house.done == []

    run_virtual(main())


def test_each_key_has_a_conversation_of_its_own() -> None:
    async def main() -> None:
        house, used = House(), set()
        for key in (ANNA, BEN, None):
            with called_by(key):
                result = await house.tools.call("lamps", {})
                used.add(_content(result)["for"])
        assert len(used) == 3

    run_virtual(main())


def test_calls_beyond_the_limit_are_refused_and_the_owner_has_a_place() -> None:
    async def main() -> None:
        house = House()
        with called_by(ANNA):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(MAX_CALLS - 1):
                    tasks.create_task(house.tools.call("wait", {}))
                await house.began.wait()
                refused = await house.tools.call("lamps", {})
                with called_by(None):
                    owners = await house.tools.call("lamps", {})
                house.released.set()
        assert refused["isError"]
        assert _content(refused)["error"] == "server_full"
        assert not owners["isError"]

    run_virtual(main())
