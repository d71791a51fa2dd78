"""`earshot doctor --update`: what the package index's answer means. The index is a local server."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from server.commands import release_check
from server.commands.release_check import INDEX, check_release, index_of

pytestmark = pytest.mark.live

PATH = "/simple/earshot-server/"
"Path that pip asks, too."


def wheel(version: str, **more: Any) -> dict[str, Any]:
    return {"filename": f"earshot_server-{version}-py3-none-any.whl", "url": "x", **more}


def listing(*files: dict[str, Any]) -> Callable[[], web.Response]:
    body = json.dumps({"meta": {"api-version": "1.1"}, "name": "earshot-server", "files": files})
    return lambda: web.Response(text=body, content_type=release_check.LISTING)


def asked(
    answer: Callable[[], web.StreamResponse], installed: str = "0.2.0"
) -> tuple[str, str, list[str]]:
    """Returns verdict and sentence, without the server's address, and the paths that were asked."""

    async def run() -> tuple[str, str, list[str]]:
        paths: list[str] = []

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            paths.append(request.path)
            return answer()

        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host = site.name.removeprefix("http://")
        found = await check_release(installed, f"http://me:hidden@{host}/simple", "3.11.4")
        await runner.cleanup()
        assert "hidden" not in found.what
        return found.verdict, found.what.replace(host, "HOST"), paths

    return asyncio.run(run())


def test_a_newer_release_is_named() -> None:
    verdict, what, paths = asked(listing(wheel("0.2.0"), wheel("0.10.0"), wheel("0.9.1")))
    assert (verdict, paths) == ("note", [PATH])
    assert what.startswith("newer releases: HOST has 0.10.0, this is 0.2.0; docs/operate.md")


@pytest.mark.parametrize(
    "other",
    [
        wheel("0.3.0rc1"),
        wheel("0.3.0", yanked="it deletes keys"),
        wheel("0.3.0", **{"requires-python": ">=3.12"}),
        wheel("0.3.0", **{"requires-python": "odd"}),
        {"filename": "earshot.exe"},
    ],
)
def test_pre_releases_withdrawn_releases_and_those_for_another_python_do_not_count(
    other: dict[str, Any],
) -> None:
    verdict, what, _ = asked(listing(wheel("0.2.0"), other))
    assert (verdict, what) == ("ok", "newer releases: none; HOST has 0.2.0, this is 0.2.0")


def test_whoever_runs_a_pre_release_is_told_of_the_next() -> None:
    assert "has 0.3.0rc2" in asked(listing(wheel("0.3.0rc2")), installed="0.3.0rc1")[1]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: web.Response(status=404), "it has no package earshot-server"),
        (
            lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}),
            "it sends us to another address, which is not asked",
        ),
        (lambda: web.Response(status=500), "HTTP status 500"),
        (lambda: web.Response(text="<html>"), "it does not answer as a package index with JSON"),
        (lambda: web.Response(text=""), "it does not answer as a package index with JSON"),
        (
            lambda: web.Response(body=b" " * (release_check.MAX_ANSWER_BYTES + 1)),
            "its answer is longer than",
        ),
        (listing(), "it lists no release for Python 3.11.4"),
    ],
)
def test_any_other_answer_is_one_clear_note(
    answer: Callable[[], web.StreamResponse], why: str
) -> None:
    verdict, what, paths = asked(answer)
    assert (verdict, paths) == ("note", [PATH])
    assert what.startswith(f"newer releases: unknown, HOST was asked: {why}")
    assert "\n" not in what


def test_no_connection_and_silence_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_check, "TIME_LIMIT_S", 0.05)

    async def run() -> list[str]:
        silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        slow = await check_release("0.2.0", f"http://127.0.0.1:{port}", "3.11.4")
        silent.close()
        gone = await check_release("0.2.0", f"http://127.0.0.1:{port}", "3.11.4")
        wrong = await check_release("0.2.0", "file:///opt/simple", "3.11.4")
        return [one.what.replace(f"127.0.0.1:{port}", "HOST") for one in (slow, gone, wrong)]

    assert asyncio.run(run()) == [
        "newer releases: unknown, HOST was asked: no answer within 0.05 s",
        "newer releases: unknown, HOST was asked: it cannot be reached",
        "newer releases: PIP_INDEX_URL must be an address with http:// or https://",
    ]


def test_pips_variable_names_the_index() -> None:
    assert index_of({}) == index_of({"PIP_INDEX_URL": " "}) == INDEX
    assert index_of({"PIP_INDEX_URL": "https://pypi.example/simple"}) == (
        "https://pypi.example/simple"
    )
