"""Downloads that the API starts, with the real command in a process and a fake hub."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from core.errors import NotFound, OverloadedError, RequestError
from server.models.inventory import find_installed
from server.models.pulls import MAX_RUNNING, ModelPull, ModelPulls
from tests.server.models.cli import environment_of
from tests.server.models.fake_hub import TINY, FakeHub, serving, weights_file, whisper_files

pytestmark = pytest.mark.live

LIMIT_S = 60


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The hub that the downloads of this process ask."""
    files = {TINY: whisper_files(), "Systran/faster-whisper-base": whisper_files()}
    with serving(FakeHub(files)) as fake:
        for name, value in environment_of(tmp_path, fake.url).items():
            monkeypatch.setenv(name, value)
        yield fake


def _run(models: Path, scenario: Callable[[ModelPulls], Awaitable[None]]) -> None:
    async def main() -> None:
        pulls = ModelPulls(models)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(pulls.run())
            await asyncio.sleep(0)
            await scenario(pulls)
            running.cancel()

    asyncio.run(main())


async def _result(pulls: ModelPulls, model: str) -> ModelPull:
    return [state async for state in pulls.events(model)][-1]


async def _started(pulls: ModelPulls, model: str) -> ModelPull:
    """Waits until the hub has told the size."""
    async for state in pulls.events(model):
        if state.total_bytes:
            return state
    raise AssertionError(pulls.pulls)


def _children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "pull" in one.cmdline()]


def test_a_model_is_downloaded_and_everybody_sees_how_far_it_is(
    tmp_path: Path, fake: FakeHub
) -> None:
    async def scenario(pulls: ModelPulls) -> None:
        pulls.start("tiny")
        pulls.start("tiny")  # the same download
        first, second = await asyncio.gather(_result(pulls, "tiny"), _result(pulls, "tiny"))
        assert first == second
        assert (first.state, first.kind, first.code) == ("done", "ct2", "")
        assert first.done_bytes == first.total_bytes > len(weights_file())
        with pytest.raises(NotFound):  # its process may still be ending
            await pulls.cancel("tiny")
        assert pulls.pulls == (first,)

    _run(tmp_path, scenario)
    assert find_installed(tmp_path, "tiny").kind == "model"
    assert len(fake.ranges("model.bin")) == 1


def test_a_cancelled_download_ends_at_once_and_another_continues_it(
    tmp_path: Path, fake: FakeHub
) -> None:
    fake.stalls_at = 1000

    async def scenario(pulls: ModelPulls) -> None:
        pulls.start("tiny")
        state = await _started(pulls, "tiny")
        assert (state.state, state.total_bytes > 300_000) == ("running", True)
        (child,) = _children()
        await pulls.cancel("tiny")
        assert not child.is_running()
        assert [one.state for one in pulls.pulls] == ["cancelled"]
        with pytest.raises(NotFound, match="not being downloaded"):
            await pulls.cancel("tiny")
        fake.stalls_at = None
        pulls.start("tiny")
        assert (await _result(pulls, "tiny")).state == "done"
        assert [one.state for one in pulls.pulls] == ["done"]

    _run(tmp_path, scenario)


def test_a_failed_download_says_why(tmp_path: Path, fake: FakeHub) -> None:
    fake.damaged["model.bin"] = bytes(len(weights_file()))

    async def scenario(pulls: ModelPulls) -> None:
        pulls.start("tiny")
        ended = await _result(pulls, "tiny")
        assert (ended.state, ended.code) == ("failed", "model_failed")
        assert "damaged" in ended.message

    _run(tmp_path, scenario)
    assert not (tmp_path / "faster-whisper-tiny").exists()


def test_a_killed_download_is_reported(tmp_path: Path, fake: FakeHub) -> None:
    fake.stalls_at = 1000

    async def scenario(pulls: ModelPulls) -> None:
        pulls.start("tiny")
        await _started(pulls, "tiny")
        _children()[0].kill()
        ended = await _result(pulls, "tiny")
        assert (ended.state, ended.code) == ("failed", "internal")
        assert "exit code -9" in ended.message

    _run(tmp_path, scenario)


def test_output_that_is_no_event_ends_the_download_and_not_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        pulls = ModelPulls(tmp_path, (sys.executable, "-c", "print('noise')"))
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(pulls.run())
            await asyncio.sleep(0)
            assert pulls.start("tiny").state == "running"
            ended = await _result(pulls, "tiny")
            assert (ended.state, ended.code) == ("failed", "model_failed")
            assert not running.done()
            running.cancel()

    asyncio.run(main())


def test_few_downloads_run_at_a_time_and_stopping_ends_them(tmp_path: Path, fake: FakeHub) -> None:
    fake.stalls_at = 1000

    async def scenario(pulls: ModelPulls) -> None:
        assert MAX_RUNNING == 2
        for name in ("tiny", "base"):
            pulls.start(name)
        with pytest.raises(OverloadedError, match="now: tiny, base"):
            pulls.start("small")
        for name in ("tiny", "base"):
            await _started(pulls, name)

    _run(tmp_path, scenario)
    assert not _children()


def test_a_caller_chooses_no_host_and_no_unknown_model(tmp_path: Path) -> None:
    pulls = ModelPulls(tmp_path)
    for name in ("", "x" * 201, "http://127.0.0.1:1/a/b"):
        with pytest.raises(RequestError, match="'model' must"):
            pulls.start(name)
    with pytest.raises(NotFound, match="similar: tiny"):
        pulls.start("tinny")
    with pytest.raises(NotFound):
        pulls.start("--help")
    assert pulls.pulls == ()
