"""A real server and a real browser whose microphone is a recording."""

import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

from core.audio import Pcm
from tests.web.browser import chromium

RATE_HZ = 48_000

WATCH_PEERS = """
  window.peers = [];
  const Plain = window.RTCPeerConnection;
  window.RTCPeerConnection = class extends Plain {
    constructor(...args) { super(...args); window.peers.push(this); }
  };
"""

ENERGY = """async () => {
  let energy = 0;
  for (const peer of window.peers) {
    for (const stat of (await peer.getStats()).values()) {
      if (stat.type === "inbound-rtp") energy += stat.totalAudioEnergy || 0;
    }
  }
  return energy;
}"""
"Energy of all sound that the browser received so far."


def write_clip(path: Path, pcm: Pcm) -> Path:
    """A WAV as Chromium's fake microphone takes it."""
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE_HZ)
        out.writeframes(pcm.astype("<i2").tobytes())
    return path


@contextmanager
def talking(clip: Path, url: str) -> Iterator[Page]:
    """The page, open, in a browser that will hear `clip` once, from the click on."""
    flags = (
        f"--use-file-for-fake-audio-capture={clip}%noloop",
        "--autoplay-policy=no-user-gesture-required",
    )
    with chromium(*flags, prefers_shell=True) as browser:
        context = browser.new_context(locale="en-GB", viewport={"width": 1360, "height": 900})
        context.grant_permissions(["microphone"])
        context.add_init_script(WATCH_PEERS)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.goto(url)
        yield page
        context.close()


def energy(page: Page) -> float:
    return float(page.evaluate(ENERGY))


def joined(*parts: Pcm) -> Pcm:
    return np.concatenate(parts)
