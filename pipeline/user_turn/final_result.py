"""Final transcript of an utterance that may continue a former one: of both together, or of the new
audio alone.

Decoding both together is usually more accurate, but not when they are two separate commands. So a
result that is a complete command wins over one that only agrees with the former transcript.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from core.errors import EarshotError, EngineError, OverloadedError
from engines.base import AsrResult
from pipeline.transcription.no_speech import NoSpeechCriterion
from pipeline.user_turn.continuation import Continuation
from pipeline.user_turn.events import UserTurnHandler
from pipeline.user_turn.utterance import OpenUtterance

NewAudioDecode = Callable[[], Awaitable[AsrResult]]
"Decodes only the new audio. Raises EngineError, OverloadedError."


async def final_result(
    open_: OpenUtterance, reactions: UserTurnHandler, alone: NewAudioDecode
) -> AsrResult:
    """Returns the final transcript. Afterwards `open_.join` says whether the utterance replaces the
    former one; if so, this must be reported at once. Raises EngineError, OverloadedError."""
    join = open_.join
    if join is None:
        result = open_.judged(await open_.utterance.finish())
        await reactions.weigh(open_.turn, result.text)
        return result
    result = await _heard(open_, join, reactions, alone)
    open_.said.decide()
    return result


async def _heard(
    open_: OpenUtterance, join: Continuation, reactions: UserTurnHandler, alone: NewAudioDecode
) -> AsrResult:
    """Returns the final transcript of an utterance that may continue another. Sets
    `join.is_taken`."""
    whole = await open_.utterance.finish()
    await join.former.known.wait()
    if not join.is_possible:
        return open_.judged(await alone())
    whole = open_.together(whole, join)
    if not whole.text:
        return whole  # the decode of all audio adds no words to the former ones
    if open_.judge is NoSpeechCriterion.RECOGNISER and join.evidence.is_silence:
        # The former words make the decode of all audio sure, even if words were made up after them.
        # So the new audio is judged alone.
        own = open_.judged(await alone())
        if not own.text:
            return own
    goes_on = reactions.goes_on(open_.turn, join.new)
    words = whole.text if goes_on else join.new
    other = await _better(words, whole, join, reactions, alone)
    if other is not None:
        return open_.judged(other)
    # again: a tool may have run meanwhile, and then nothing is replaced
    if reactions.goes_on(open_.turn, join.new):
        join.is_taken = True
        return whole
    return replace(whole, text=join.new, words=join.late(whole), segments=(), tokens=())


async def _better(
    words: str,
    whole: AsrResult,
    join: Continuation,
    reactions: UserTurnHandler,
    alone: NewAudioDecode,
) -> AsrResult | None:
    """Returns the decode of only the new audio where it is more credible than `words`, taken from
    the decode of all audio. Returns None to keep `words`, also when that decode fails."""
    is_command = await _is_whole(words, whole.language, reactions)
    if is_command or (is_command is None and join.agrees(whole)):
        return None
    try:
        other = await alone()
    except (EngineError, OverloadedError):
        return None
    is_other = await _is_whole(other.text, other.language, reactions) if other.text else False
    if is_other is not None and is_other != bool(is_command):
        return other if is_other else None
    is_surer = other.confidence > whole.confidence
    return other if other.text and is_surer and not join.agrees(whole) else None


async def _is_whole(words: str, language: str, reactions: UserTurnHandler) -> bool | None:
    try:
        return await reactions.is_whole(words, language)
    except EarshotError:
        return None  # the answer meets the same error and reports it
