"""Whole turns of simulated devices: wake word, speech, command, answer."""

from tests.devices.willow_was.servers import SPEECH, Server, against


def test_a_stock_device_is_configured_and_answered() -> None:
    async def act(server: Server) -> None:
        device = await server.device()
        assert device.config is not None
        assert device.config["wis_url"] == f"{server.url}/api/willow?device=dev_0"
        turn = await device.speak(SPEECH)
        assert (turn.won, turn.status, turn.heard["text"]) == (True, 200, "one two")
        assert (turn.ok, turn.speech) == (True, "you said one two.")
        assert turn.sound[:4] == b"RIFF"
        assert len(device.results()) == 1

    against(act)
