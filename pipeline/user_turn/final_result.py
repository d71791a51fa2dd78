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
from pipeline.user_turn.events import TurnResponder
from pipeline.user_turn.utterance import OpenUtterance

NewAudioDecode = Callable[[], Awaitable[AsrResult]]
"Decodes only the new audio. Raises EngineError, OverloadedError."


async def final_result(
    open_: OpenUtterance, responder: TurnResponder, decode_new_audio: NewAudioDecode
) -> AsrResult:
    """Returns the final transcript. Afterwards `open_.continuation` says whether the utterance
    replaces the former one; if so, this must be reported at once. Raises EngineError,
    OverloadedError."""
    continuation = open_.continuation
    if continuation is None:
        result = open_.filtered(await open_.stream.finish())
        await responder.check_interruption(open_.turn, result.text)
        return result
    result = await _joined_result(open_, continuation, responder, decode_new_audio)
    open_.record.settle_continuation()
    return result


async def _joined_result(
    open_: OpenUtterance,
    continuation: Continuation,
    responder: TurnResponder,
    decode_new_audio: NewAudioDecode,
) -> AsrResult:
    """Returns the final transcript of an utterance that may continue another. Sets
    `continuation.is_taken`."""
    joined = await open_.stream.finish()
    await continuation.former.known.wait()
    if not continuation.is_possible:
        return open_.filtered(await decode_new_audio())
    joined = open_.filter_joined(joined, continuation)
    if not joined.text:
        return joined  # the decode of all audio adds no words to the former ones
    if open_.criterion is NoSpeechCriterion.RECOGNISER and continuation.evidence.is_silence:
        # The former words make the decode of all audio sure, even if words were made up after them.
        # So the new audio is judged alone.
        own = open_.filtered(await decode_new_audio())
        if not own.text:
            return own
    replaces = responder.replaces_former(open_.turn, continuation.words_added)
    words = joined.text if replaces else continuation.words_added
    other = await _more_credible(words, joined, continuation, responder, decode_new_audio)
    if other is not None:
        return open_.filtered(other)
    # again: a tool may have run meanwhile, and then nothing is replaced
    if responder.replaces_former(open_.turn, continuation.words_added):
        continuation.is_taken = True
        return joined
    return replace(
        joined,
        text=continuation.words_added,
        words=continuation.words_in_new_audio(joined),
        segments=(),
        tokens=(),
    )


async def _more_credible(
    words: str,
    joined: AsrResult,
    continuation: Continuation,
    responder: TurnResponder,
    decode_new_audio: NewAudioDecode,
) -> AsrResult | None:
    """Returns the decode of only the new audio where it is more credible than `words`, taken from
    the decode of all audio. Returns None to keep `words`, also when that decode fails."""
    is_command = await _is_command(words, joined.language, responder)
    if is_command or (is_command is None and continuation.agrees(joined)):
        return None
    try:
        other = await decode_new_audio()
    except (EngineError, OverloadedError):
        return None
    is_other = await _is_command(other.text, other.language, responder) if other.text else False
    if is_other is not None and is_other != bool(is_command):
        return other if is_other else None
    is_surer = other.confidence > joined.confidence
    return other if other.text and is_surer and not continuation.agrees(joined) else None


async def _is_command(words: str, language: str, responder: TurnResponder) -> bool | None:
    try:
        return await responder.is_command(words, language)
    except EarshotError:
        return None  # the answer meets the same error and reports it
