"""`run_in_thread`: a cancelled caller waits until its thread has ended."""

import asyncio
from threading import Event

import pytest

from core.tasks import run_in_thread


def test_a_call_in_a_thread_returns_or_raises_its_result() -> None:
    assert asyncio.run(run_in_thread(max, 3, 4)) == 4
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_in_thread(lambda: 1 // 0))


@pytest.mark.parametrize("cancels", [1, 3])
def test_a_cancelled_caller_waits_for_its_thread(cancels: int) -> None:
    began, may_end, ended = Event(), Event(), Event()

    def call() -> None:
        began.set()
        may_end.wait()
        ended.set()
        raise ValueError("nobody listens")

    async def scene() -> None:
        async with asyncio.TaskGroup() as tasks:
            caller = tasks.create_task(run_in_thread(call))
            await asyncio.to_thread(began.wait)
            for _ in range(cancels):
                caller.cancel()
                for _ in range(5):
                    await asyncio.sleep(0)
                assert not caller.done()
            may_end.set()
            await asyncio.wait([caller])
        assert caller.cancelled()
        assert ended.is_set()

    asyncio.run(scene())
