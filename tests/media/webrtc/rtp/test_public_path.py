"""Parts of the path over aiortc's public interface; `test_peer.py` tests whole calls."""

import asyncio
from fractions import Fraction

import numpy as np
import pytest
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame as AvFrame

from core.errors import OverloadedError, RequestError
from media.webrtc.ice.candidates import public_candidate_lines
from media.webrtc.ice.settings import IceSettings
from media.webrtc.rtp import call_path
from media.webrtc.rtp.call_path import has_fast_path
from media.webrtc.rtp.public_path import MAX_QUEUED_PACKETS, DecodedAudio, OutgoingTrack, PublicPath
from tests.media.paths import PUBLIC
from tests.media.peer_ends import End

HOST = "candidate:{} 1 udp 2130706431 {} 40000 typ host"
SDP = f"v=0\r\na={HOST.format('ab', '10.0.0.7')}\r\na={HOST.format('cd', 'fd00::7')}\r\n"


def decoded(pts: int, level: int = 1000, samples: int = 960) -> AvFrame:
    """Returns a stereo packet as aiortc decodes it: the mean of both channels is `level`."""
    both = np.empty((1, 2 * samples), np.int16)
    both[0, ::2], both[0, 1::2] = 2 * level, 0
    frame = AvFrame.from_ndarray(both, format="s16", layout="stereo")
    frame.sample_rate, frame.pts, frame.time_base = 48_000, pts, Fraction(1, 48_000)
    return frame


def test_stereo_becomes_mono_frames_of_20_ms() -> None:
    audio = DecodedAudio(16_000)
    frames = [frame for n in range(5) for frame in audio.push(decoded(960 * n))]
    assert [frame.start for frame in frames] == [0, 320, 640, 960, 1280]
    assert all(frame.rate_hz == 16_000 for frame in frames)
    assert np.abs(frames[-1].pcm - 1000).max() < 20


@pytest.mark.parametrize(("lost", "filled"), [(1, 1), (10, 10), (500, 50), (-3, 0)])
def test_missing_packets_become_silence(lost: int, filled: int) -> None:
    """At most a second is filled; a timestamp that goes back fills nothing."""
    audio = DecodedAudio(16_000)
    audio.push(decoded(0))
    frames = audio.push(decoded(960 * (1 + lost)))
    assert len(frames) == filled + 1
    assert len([one for one in frames if np.abs(one.pcm).max() < 10]) == max(filled - 1, 0)


def test_packets_are_dropped_if_aiortc_does_not_fetch_them() -> None:
    async def main() -> None:
        track = OutgoingTrack()
        for n in range(MAX_QUEUED_PACKETS + 10):
            track.send(960 * n, b"%d" % n)
        first = await track.recv()
        assert (bytes(first), first.pts, first.time_base) == (b"10", 9600, Fraction(1, 48_000))
        assert track.wanted.is_set()

    asyncio.run(main())


def test_a_public_address_is_added_to_each_candidate_of_its_ip_version() -> None:
    lines = public_candidate_lines(SDP, "198.51.100.7").splitlines()
    assert lines[:2] == SDP.splitlines()[:2]
    public = candidate_from_sdp(lines[2].removeprefix("a=candidate:"))
    assert (public.type, public.ip, public.port) == ("srflx", "198.51.100.7", 40_000)
    assert (public.relatedAddress, public.relatedPort) == ("10.0.0.7", 40_000)
    assert public.priority == 1_694_498_815, "as aioice counts for this kind"
    assert lines[3:] == SDP.splitlines()[2:]


def public_path(settings: IceSettings) -> PublicPath:
    path = object.__new__(PublicPath)
    path._ice = settings
    return path


def test_a_description_without_a_candidate_is_refused() -> None:
    with pytest.raises(OverloadedError) as refused:
        public_path(IceSettings()).described("v=0\r\n")
    assert refused.value.code == "no_ice_candidates"
    assert public_path(IceSettings()).described(SDP) == SDP


def test_an_ice_restart_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        public_path(IceSettings()).restart_ice(IceSettings())
    assert refused.value.code == "ice_restart_unsupported"


@pytest.mark.live
def test_a_missing_private_name_selects_the_public_path(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        end = End(500)
        assert isinstance(end.peer._path, PublicPath)
        await end.peer.close()

    assert has_fast_path(IceSettings())
    assert not has_fast_path(PUBLIC.ice)
    monkeypatch.setattr(call_path, "call_path_obstacles", lambda: ("aiortc.X._y is missing",))
    assert not has_fast_path(IceSettings())
    asyncio.run(main())
