"""The two paths of calls, for tests that hold on both."""

import pytest

from media.webrtc.ice.settings import IceSettings
from media.webrtc.peer import PeerSettings

FAST, PUBLIC = PeerSettings(), PeerSettings(ice=IceSettings(wants_fast_path=False))

on_both_paths = pytest.mark.parametrize("path", [FAST, PUBLIC], ids=["fast", "public"])
"Runs a test on the fast path, and on aiortc's public interface alone."
