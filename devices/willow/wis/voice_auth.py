"""`voice_auth`: only people whose voices the server knows are recognised, as in WIS."""

from core.access.named_key import CALLER_KEY
from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.speakers import SpeakerMatch
from core.errors import EngineMissing, RequestError
from serving.speaker.model import SpeakerPriority
from serving.speaker.recognition import SpeakerRecognition

DEFAULT_THRESHOLD = 0.75
"Default of `sv_threshold`, that of WIS."

HEARD_SAMPLES = 10 * ASR_RATE_HZ
"Longest beginning of the speech that is compared, as in WIS."


class VoiceAuthorisation:
    """Compares the speech of devices with the voices that the caller's key knows."""

    def __init__(
        self, recognition: SpeakerRecognition | None, threshold: float = DEFAULT_THRESHOLD
    ) -> None:
        """`recognition`: None: every voice is unknown. `threshold`: score from which a voice is
        known."""
        self._recognition, self._threshold = recognition, threshold

    async def speaker(self, pcm: Pcm) -> SpeakerMatch:
        """Returns the person who speaks. `pcm`: 16 kHz.

        Raises RequestError unauthorized_voice for an unknown voice, EngineError, OverloadedError.
        """
        if self._recognition is None:
            raise _unauthorised("this server does not compare voices")
        key = CALLER_KEY.get()
        if not self._recognition.count_people(key):
            raise _unauthorised("nobody has taught this server a voice: `earshot speakers add`")
        try:
            match, _ = await self._recognition.compare(
                pcm, key, SpeakerPriority.TURN, self._threshold
            )
        except EngineMissing as error:
            raise _unauthorised(str(error)) from error
        if match is None:
            raise _unauthorised("the voice is not that of a person whom this server knows")
        return match


def _unauthorised(why: str) -> RequestError:
    return RequestError(why, code="unauthorized_voice", param="voice_auth")
