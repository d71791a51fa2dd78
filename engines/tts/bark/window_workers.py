"""Workers of the stages that compute whole windows and clips: finer codes, and the codec."""

from collections.abc import Sequence
from itertools import count

import numpy as np
import torch

from engines.base.codec import CodecModel
from engines.runtime.sampling import GREEDY_BELOW
from engines.tts.bark.layout import COARSE_CODEBOOKS, BarkLayout
from engines.tts.bark.networks import FineNetwork
from engines.tts.bark.stage_tokens import FineItem, SoundItem


class FineWorker:
    """A `StageWorker` that computes one window of every item in each step."""

    def __init__(self, network: FineNetwork, layout: BarkLayout, slots: int) -> None:
        self.slots = slots
        self._network, self._layout = network, layout
        self._items: dict[int, FineItem] = {}
        self._random: dict[int, torch.Generator] = {}
        self._numbers = count()

    def start(self, item: FineItem) -> int:
        """Adds an item."""
        number = next(self._numbers)
        self._items[number] = item
        device = self._network.positions.device
        self._random[number] = torch.Generator(device).manual_seed(item.seed)
        return number

    def step(self) -> Sequence[int]:
        """Computes a window of every item, one codebook after the other."""
        codes = torch.from_numpy(np.stack([one.window_codes() for one in self._items.values()]))
        codes = codes.to(self._network.positions.device)
        with torch.inference_mode():
            for codebook in range(COARSE_CODEBOOKS, self._layout.codebooks):
                output = self._network.run(codes, codebook)
                for row, (number, item) in enumerate(self._items.items()):
                    assert item.next_window is not None
                    fill = item.next_window.fill
                    scores = self._network.scores(output[row, fill:], codebook)
                    codes[row, fill:, codebook] = self._pick(scores, self._random[number])
        for item, found in zip(self._items.values(), codes.cpu().numpy(), strict=True):
            item.push(found)
        complete = [number for number, item in self._items.items() if item.next_window is None]
        for number in complete:
            self.cancel(number)
        return complete

    def cancel(self, number: int) -> None:
        """Ends an item."""
        self._items.pop(number, None)
        self._random.pop(number, None)

    def _pick(self, scores: torch.Tensor, random: torch.Generator) -> torch.Tensor:
        """Returns a code of each row of scores."""
        temperature = self._layout.fine.temperature
        if temperature < GREEDY_BELOW:
            return scores.argmax(-1)
        chances = (scores.float() / temperature).softmax(-1)
        return torch.multinomial(chances, 1, generator=random)[:, 0]


class CodecWorker:
    """A `StageWorker` that decodes all its items in one step."""

    def __init__(self, codec: CodecModel, slots: int) -> None:
        self.slots = slots
        self._codec = codec
        self._items: dict[int, SoundItem] = {}
        self._numbers = count()

    def start(self, item: SoundItem) -> int:
        """Adds an item."""
        number = next(self._numbers)
        self._items[number] = item
        return number

    def step(self) -> Sequence[int]:
        """Decodes all items."""
        items, self._items = self._items, {}
        clips = [item.codes.astype(np.int16)[None] for item in items.values()]
        for item, sound in zip(items.values(), self._codec.decode(clips), strict=True):
            item.sound = sound
        return list(items)

    def cancel(self, number: int) -> None:
        """Ends an item."""
        self._items.pop(number, None)
