"""Sound that was sent to a line and is not played yet, by the marks that the line sends back.
Pure."""

from collections import deque

from core.audio import Pcm

MAX_UNPLAYED_FRAMES = 100
"""Most frames of 20 ms that count as not played: 2 s. A mark that is later than this was lost, or
the other end sends none; then its sound counts as played."""


class SentSound:
    """Frames of one call. Each has a number, which its mark names; numbers only grow."""

    def __init__(self) -> None:
        self._unplayed: deque[tuple[int, Pcm]] = deque(maxlen=MAX_UNPLAYED_FRAMES)
        self._count = 0

    def add(self, pcm: Pcm) -> int:
        """Notes that a frame is sent. Returns its number."""
        self._count += 1
        self._unplayed.append((self._count, pcm))
        return self._count

    def played(self, number: int) -> None:
        """Notes that this frame and all before it were played. The mark of a frame that was taken
        back changes nothing."""
        while self._unplayed and self._unplayed[0][0] <= number:
            self._unplayed.popleft()

    def take_back(self) -> list[Pcm]:
        """Returns the frames that were not played, oldest first, and forgets them."""
        frames = [pcm for _, pcm in self._unplayed]
        self._unplayed.clear()
        return frames
