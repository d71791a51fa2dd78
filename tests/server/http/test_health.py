"""`/health` for any client, for trusted clients, and while the server starts and stops."""

import asyncio

import pytest

from server.http.auth import AccessGate
from server.http.health import Health, health_routes
from server.runtime.lifecycle import Lifecycle, LifecycleState, drain
from tests.loop import run_virtual
from tests.server.http.harness import KEY, serving

pytestmark = pytest.mark.live


def details(state: LifecycleState) -> Health:
    return Health(state, version="1", sessions=2, max_sessions=8, loaded={"asr": "pocketsphinx"})


def test_health_states_and_what_clients_without_a_key_see() -> None:
    async def run() -> None:
        lifecycle = Lifecycle()
        gate = AccessGate(is_local=False, key=KEY)
        async with serving(health_routes(lifecycle, details), gate=gate) as client:
            starting = await client.get("/health")
            assert (starting.status, await starting.json()) == (503, {"status": "starting"})
            lifecycle.watch(lambda: True)
            ready = await client.get("/health")
            assert (ready.status, await ready.json()) == (200, {"status": "ready"})
            keyed = await client.get("/health", headers={"Authorization": f"Bearer {KEY}"})
            assert await keyed.json() == {
                "status": "ready",
                "version": "1",
                "sessions": 2,
                "max_sessions": 8,
                "loaded": {"asr": "pocketsphinx"},
            }
            lifecycle.stop()
            draining = await client.get("/health")
            assert (draining.status, await draining.json()) == (503, {"status": "draining"})
            assert "Server" not in draining.headers

    asyncio.run(run())


def test_local_clients_see_the_details_without_a_key() -> None:
    async def run() -> None:
        lifecycle = Lifecycle()
        lifecycle.watch(lambda: True)
        async with serving(health_routes(lifecycle, details)) as client:
            assert (await (await client.get("/health")).json())["sessions"] == 2
            foreign = await client.get("/health", headers={"Origin": "https://evil.example"})
            assert await foreign.json() == {"status": "ready"}

    asyncio.run(run())


class Work:
    """Turns that need `takes_s` to end."""

    count = 1

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s
        self.has_ended = False

    async def drain(self, timeout_s: float) -> None:
        await asyncio.sleep(self._takes_s)
        self.has_ended = True


def test_a_drain_waits_for_turns_up_to_its_timeout() -> None:
    quick, stuck = Work(3), Work(1000)
    assert run_virtual(drain(quick, 10)) == 3
    assert quick.has_ended
    assert 10 <= run_virtual(drain(stuck, 10)) < 12
    assert not stuck.has_ended
