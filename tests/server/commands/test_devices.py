"""`earshot devices` against the real routes of a server: its output and exit codes."""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from core.errors import ConfigError, NotFound, RequestError
from devices.fleet.directory import Device
from server.__main__ import main
from server.commands.devices import run
from server.commands.devices_arguments import ACTIONS, add_actions
from server.commands.exit_codes import ExitCode
from server.commands.server_api import address_of
from server.config import Config
from server.config.load import load
from server.http.auth import AccessGate
from server.runtime.state_dir import make_key
from tests.devices.api.fakes import FakeLive
from tests.devices.api.scenes import Scene, scene
from tests.devices.registry.harness import contact
from tests.server.http.harness import KEY

pytestmark = pytest.mark.live


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_actions(parser)
    return parser.parse_args(arguments)


async def earshot(here: Scene, *arguments: str) -> ExitCode:
    options = parsed(*arguments, "--url", url_of(here), "--key", KEY)
    return await asyncio.to_thread(run, options, Config(), {})


def url_of(here: Scene) -> str:
    return str(here.client._base_url)


async def speaker(here: Scene, name: str = "Lamp") -> Device:
    device = await here.new(f"aa:{name}", "127.0.0.1")
    return await here.registry.edit(device.id, name=name)


def test_devices_are_listed_paired_named_and_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with scene(tmp_path, gate=AccessGate(is_local=False, key=KEY)) as here:

            async def says(*arguments: str) -> str:
                assert await earshot(here, *arguments) == ExitCode.OK
                return capsys.readouterr().out.rstrip("\n")

            assert await says("list") == "no device has connected yet"
            new = await here.new()
            assert f"waits for approval ({new.pairing_code})" in await says("list")
            assert await says("pair", new.pairing_code) == f"approved: xiaozhi aa01 ({new.id})"
            reset = replace(contact("aa:01"), identity=b"1" * 32)
            await here.registry.check_in(reset)
            reset = replace(reset, identity=b"2" * 32)
            claim = await here.registry.check_in(reset)
            waits = f"away, new identity waits ({claim.pairing_code})"
            assert waits in await says("list")
            for words in ([], ["000000" if claim.pairing_code != "000000" else "1" * 6]):
                with pytest.raises(RequestError, match=r"pairing_code_(needed|unknown)"):
                    await earshot(here, "approve", new.id, *words)
            done = await says("approve", new.id, claim.pairing_code)
            assert done == "approved: xiaozhi aa01"
            assert "new identity" not in await says("list")
            assert "Küche  xiaozhi  -" in await says("rename", new.id, "Küche")
            assert "Küche  xiaozhi  cellar  away" in await says("area", "AA:01", "cellar")
            shown = await says("profile", "küche", "volume=3", "tools=a,b", "voice=v", "--json")
            profile = msgspec.json.decode(shown)["profile"]
            assert (profile["volume"], profile["tools"], profile["voice"]) == (3, ["a", "b"], "v")
            shown = await says("profile", "küche", "volume=", "tools=", "echo=cancel", "--json")
            profile = msgspec.json.decode(shown)["profile"]
            assert (profile["volume"], profile["echo"]) == (None, "cancel")
            assert await says("notify", "küche", "dinner") == "it waits until Küche connects"
            assert "away, notices waiting: 1" in await says("list")
            live = FakeLive(timing={"b": 600.4, "a": 12.0})
            with here.presence.connected(new.id, live):
                here.presence.note_turn(new.id)
                assert await says("notify", "küche", "now") == "spoken"
                assert await says("notify", "--area", "cellar", "now") == "spoken on 1 device"
                assert await says("restart", "küche") == "restarting: Küche"
                assert await says("ota", "küche", "2.5.0") == "updating: Küche"
                log = (await says("logs", "küche")).splitlines()
                assert log[0].endswith("  connected")
                assert log[1].endswith("  turn          a 12 ms, b 600 ms")
                assert await says("block", "küche") == "blocked: Küche"
            assert live.told == ["restart", "update 2.5.0", "close"]
            assert await says("approve", "küche") == "approved: Küche"
            assert await says("forget", "küche") == "forgotten: Küche"
            assert await says("list", "--json") == '{"devices":[]}'

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rename", "nobody", "x"], "'nobody'"),
        (["rename", "twin", "x"], "2 devices have the name 'twin'"),
        (["pair", "000000"], "pairing_code_unknown"),
        (["profile", "Lamp", "volume=101"], r"profile\.volume.*<= 100"),
        (["restart", "Lamp"], "device_away"),
        (["notify", "--area", "moon", "x"], "area_not_found"),
    ],
)
def test_a_refusal_of_the_server_is_printed(
    tmp_path: Path, arguments: Sequence[str], words: str
) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            await speaker(here)
            for number in range(2):
                twin = await here.new(f"bb:{number}", "127.0.0.1")
                await here.registry.edit(twin.id, name="twin")
            with pytest.raises((RequestError, NotFound), match=words):
                await earshot(here, *arguments)

    asyncio.run(main())


@pytest.mark.parametrize(
    "arguments",
    [
        ["notify", "only-text"],
        ["notify", "a", "b", "c"],
        ["notify", "--area", "kitchen", "a", "b"],
        ["profile", "Lamp", "volume"],
        ["profile", "Lamp", "volume=loud"],
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: Sequence[str]) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            await speaker(here)
            with pytest.raises(ConfigError):
                await earshot(here, *arguments)

    asyncio.run(main())


def test_an_unreachable_server_or_a_wrong_key_exits_with_5(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with scene(tmp_path, gate=AccessGate(is_local=False, key=f"{KEY}-2")) as here:
            assert await earshot(here, "list") == ExitCode.CONNECTION_FAILED
            assert "key is wrong" in capsys.readouterr().err
            gone = parsed("list", "--url", url_of(here))
        assert await asyncio.to_thread(run, gone, Config(), {}) == ExitCode.CONNECTION_FAILED
        assert "refused" in capsys.readouterr().err

    asyncio.run(main())


def test_the_stored_key_is_sent_only_to_this_machine(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    config = load({"EARSHOT_STATE_DIR": str(tmp_path), "EARSHOT_PORT": "9000"}).config

    def key_for(*arguments: str, **environ: str) -> str | None:
        return address_of(parsed("list", *arguments), config, environ).key

    assert address_of(parsed("list"), config, {}).url == "http://127.0.0.1:9000"
    assert key_for() == key_for("--url", "http://localhost:1") == key
    assert key_for("--url", "http://elsewhere.example") is None
    assert key_for("--url", "http://elsewhere.example", EARSHOT_KEY="given") == "given"
    assert key_for("--key", "mine", EARSHOT_KEY="given") == "mine"


@pytest.mark.parametrize(
    ("settings", "url", "is_insecure"),
    [
        ({}, "http://127.0.0.1:8080", True),
        ({"EARSHOT_HOST": "0.0.0.0", "EARSHOT_TLS": "auto"}, "https://127.0.0.1:8080", True),
        ({"EARSHOT_HOST": "::1"}, "http://[::1]:8080", True),
        ({"EARSHOT_HOST": "192.168.1.2", "EARSHOT_TLS": "auto"}, "https://192.168.1.2:8080", False),
    ],
)
def test_the_default_url_is_that_of_the_configured_server(
    settings: dict[str, str], url: str, is_insecure: bool, tmp_path: Path
) -> None:
    config = load({**settings, "EARSHOT_STATE_DIR": str(tmp_path)}).config
    address = address_of(parsed("list"), config, {})
    assert (address.url, address.is_insecure) == (url, is_insecure)


def test_port_0_is_not_an_address() -> None:
    with pytest.raises(ConfigError, match="--url"):
        address_of(parsed("list"), load({"EARSHOT_PORT": "0"}).config, {})


def test_devices_is_a_command_of_earshot(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "list", "--url", "ftp://x"]) == ExitCode.USAGE
    assert "'ftp://x' is no address" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["devices", "dance"])
    assert ended.value.code == ExitCode.USAGE


def test_every_action_is_documented() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "devices.md").read_text(encoding="utf-8")
    for name, _, _ in ACTIONS:
        assert f"earshot devices {name}" in page or f"|{name}" in page
