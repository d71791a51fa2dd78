"""Steps of a model on the CPU, driven by a test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from core.audio import Pcm
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.slots import GeneratedTokens, SlotRange
from engines.asr.whisper_torch.network.device import DeviceModel, open_device
from engines.asr.whisper_torch.network.features import normalized_window_tensor
from tests.speech import say

SENTENCES = (
    ("turn on the kitchen lights", "en-us"),
    ("what time is it", "en-gb"),
    ("add milk and bread to the shopping list", "en-gb"),
    ("set a timer for ten minutes", "en-us"),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """A requested answer: its clip, its start, and the number of steps after which it joins."""

    clip: int
    new: NewRow
    after: int = 0


def clips() -> list[Pcm]:
    return [say(text, voice) for text, voice in SENTENCES]


def opened(folder: Path, capacity: int = 8, compute_type: str = "float32") -> DeviceModel:
    with torch.inference_mode():
        return open_device(folder, compute_type, "cpu", capacity)


def mel(device: DeviceModel, pcm: Pcm, frames: int = 3000) -> torch.Tensor:
    return normalized_window_tensor(device.features.powers(pcm), frames)


def encoded_windows(device: DeviceModel, mels: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns encoder outputs; each window alone, because their lengths differ."""
    with torch.inference_mode():
        return [device.launcher.encode(one[None].to(device.dtype))[0] for one in mels]


def answers(
    device: DeviceModel,
    encoded: Sequence[torch.Tensor],
    wishes: Sequence[Wish],
    leaves: Mapping[int, int] | None = None,
) -> dict[int, GeneratedTokens]:
    """Returns the answers by index; each request joins after its steps once there is room.
    `leaves`: index -> the number of steps that it stays."""
    waiting, occupied = list(range(len(wishes))), dict[int, SlotRange]()
    stays, found, step = dict(leaves or {}), dict[int, GeneratedTokens](), 0
    with torch.inference_mode():
        while waiting or occupied:
            for index in [i for i in waiting if wishes[i].after <= step]:
                wish = wishes[index]
                first = device.rows.find_free(wish.new.beam_size)
                if first is not None:
                    waiting.remove(index)
                    occupied[index] = device.rows.join(first, wish.new, encoded[wish.clip])
            if occupied:
                device.rows.step()
            step += 1
            ended = device.rows.ended()
            written = dict(zip(map(id, ended), device.rows.answers(ended), strict=True))
            for index, slot_range in list(occupied.items()):
                if slot_range in ended:
                    found[index] = written[id(slot_range)]
                elif index in stays:
                    stays[index] -= 1
                if slot_range in ended or stays.get(index) == 0:
                    device.rows.leave(slot_range)
                    del occupied[index]
    return found
