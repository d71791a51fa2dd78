"""A server whose recognisers are two replicas on a real cluster of one machine with two processors,
and whose voice is another one.

`test_environment_real.py` runs it in an environment with Ray.
"""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession, FormData

from bench.client.http import Address
from bench.server.own_cluster import OwnCluster, own_cluster
from bench.server.own_server import own_server
from tests.conftest import require
from tests.real_models import tiny_en

pytestmark = pytest.mark.real

RECORDINGS = Path(__file__).parents[3] / "../shared/data/real-commands"
PERSONS = {"order_004.flac": ("medium", "double shot"), "order_010.flac": ("espresso", "milk")}
"Recordings of people, and words of them that the model hears."

REPLICAS = 2
AT_ONCE = 8
IN_FLIGHT_S = 0.3
"Time after which requests have reached the replicas; none is answered so soon."

SPOKEN_BYTES = 24_000
"Half a second of speech."

START_S = 240.0
LIMIT_S = 500.0


async def words_of(session: ClientSession, address: Address, name: str) -> str:
    form = FormData()
    form.add_field("file", (RECORDINGS / name).read_bytes(), filename=name)
    form.add_field("model", "default")
    url = f"{address.url}/v1/audio/transcriptions"
    async with session.post(url, data=form) as response:
        answer = await response.json()
        assert response.status == 200, answer
    return str(answer["text"]).lower()


async def speech_of(session: ClientSession, address: Address, text: str) -> bytes:
    body = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"}
    async with session.post(f"{address.url}/v1/audio/speech", json=body) as response:
        sound = await response.read()
        assert response.status == 200, sound
        return sound


async def kill_one_while_it_works(cluster: OwnCluster, address: Address) -> None:
    names = [*PERSONS] * (AT_ONCE // len(PERSONS))
    async with ClientSession() as session:
        expected = {name: await words_of(session, address, name) for name in PERSONS}
        for name, words in PERSONS.items():
            assert all(word in expected[name] for word in words), expected
        assert len(await speech_of(session, address, "Good evening.")) > SPOKEN_BYTES
        replicas = await asyncio.to_thread(cluster.replicas)
        voices = [replica for replica in replicas if "earshot-tts" in replica.cmdline()[0]]
        replicas = [replica for replica in replicas if replica not in voices]
        assert (len(replicas), len(voices)) == (REPLICAS, 1)
        async with asyncio.TaskGroup() as tasks:
            heard = [tasks.create_task(words_of(session, address, name)) for name in names]
            await asyncio.sleep(IN_FLIGHT_S)
            assert not any(task.done() for task in heard)
            replicas[0].kill()
        assert [task.result() for task in heard] == [expected[name] for name in names]
        assert await words_of(session, address, names[0]) == expected[names[0]]


def test_a_replica_killed_with_utterances_in_flight_costs_no_words(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: the extra scale")
    require(RECORDINGS.is_dir(), "the recordings of people are not here")
    config = tmp_path / "earshot.toml"
    config.write_text(
        f'[asr]\nengine = "faster_whisper"\npool = "ray"\n[asr.options]\nmodel = "{tiny_en()}"\n'
        f"[cluster.asr]\nmin_replicas = {REPLICAS}\ncpus = 0.5\n[cluster.tts]\ncpus = 0.5\n"
        '[tts]\nengine = "hibari"\npool = "ray"\n'
    )

    async def main() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            own_cluster() as cluster,
            own_server(
                ["--config", str(config)], environ=cluster.environ, start_timeout_s=START_S
            ) as server,
        ):
            await kill_one_while_it_works(cluster, server.address)

    asyncio.run(main())
