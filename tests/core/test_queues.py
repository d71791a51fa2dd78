"""The bounded outbox: it waits for room, overflows, and never loses a wake-up. Virtual time."""

import asyncio

from core.queues import Outbox
from tests.loop import run_virtual


def test_room_waits_until_the_reader_has_taken_enough() -> None:
    async def main() -> None:
        outbox: Outbox[int] = Outbox(10)
        await outbox.room(2)
        for item in range(3):
            outbox.put(item)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(outbox.room(2))
            await asyncio.sleep(1)
            assert not waiting.done()
            reader = aiter(outbox)
            assert [await anext(reader), await anext(reader)] == [0, 1]
        outbox.put(3)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(outbox.room(2))
            await asyncio.sleep(1)
            outbox.close()

    run_virtual(main())


def test_a_full_outbox_ends_after_the_items_it_holds() -> None:
    async def main() -> None:
        outbox: Outbox[int] = Outbox(3)
        for item in range(4):
            outbox.put(item)
        assert outbox.overflowed
        assert [item async for item in outbox] == [0, 1, 2]
        fine: Outbox[int] = Outbox(3)
        fine.put(1)
        fine.close()
        fine.put(2)
        assert [item async for item in fine] == [1]
        assert not fine.overflowed

    run_virtual(main())
