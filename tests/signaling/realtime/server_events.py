"""One of every event that the server sends."""

import numpy as np

from core.conversation.events import (
    ErrorEvent,
    FunctionCallArgumentsDelta,
    HypothesisChanged,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    ResponseParameters,
    ServerToolItem,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    StageSpan,
    TimeoutTriggered,
    TranscriptionCompleted,
    TranscriptionFailed,
    TruncationPoint,
    TurnTimeline,
    WakeStateChanged,
)
from core.conversation.items import (
    AudioPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    MessageItem,
    TextPart,
)
from core.conversation.usage import RateLimit, RateLimits, TokenUsage
from signaling.realtime.protocol.audio_format import MAX_DELTA_SAMPLES

USER = MessageItem("item_u", "user", (AudioPart(),))


WRITTEN = MessageItem("item_w", "user", (TextPart("hi"), ImagePart("data:image/png;base64,AA")))


SYSTEM = MessageItem("item_s", "system", (TextPart("be brief"),))


STARTED = MessageItem("item_a", "assistant", (), "in_progress")


SPOKEN = MessageItem("item_a", "assistant", (AudioPart("It is on."),))


TYPED = MessageItem("item_a", "assistant", (TextPart("It is on."),))


CALL = FunctionCallItem("item_f", "call_1", "set_light", '{"on":true}')


OUTPUT = FunctionOutputItem("item_o", "call_1", "{}")


TRACE = TurnTimeline(
    "turn_1",
    "item_u",
    "resp_1",
    "answered",
    (StageSpan("asr", 0, 31.5, is_speculative=True),),
    512.3,
    {"asr_final": 31.5},
    TruncationPoint(3, "word_times"),
)


NOISE = np.zeros(MAX_DELTA_SAMPLES + 1, np.int16)


EVERY: list[SessionEvent] = [
    WakeStateChanged("okay_nabu", "Okay Nabu", is_awake=True),
    ServerToolItem("resp_r", FunctionOutputItem("item_t", "call_t", "{}")),
    SpeechStarted("item_u", 120),
    HypothesisChanged("item_u", "turn on", "the", 640),
    SpeechStopped("item_u", 1500),
    SpeechStarted("item_x", 1700),
    SpeechDiscarded("item_x"),
    SpeechDiscarded("item_x"),
    TimeoutTriggered("item_u", 1500, 6500),
    InputCommitted("item_u", None),
    InputCleared(),
    *(
        kind(item, "root")
        for kind in (ItemAdded, ItemDone)
        for item in (USER, WRITTEN, SYSTEM, SPOKEN, TYPED, CALL, OUTPUT)
    ),
    ItemTruncated("item_a", 900),
    ItemDeleted("item_u"),
    ItemRetrieved(CALL),
    ItemRetrieved(USER),
    TranscriptionCompleted("item_u", "turn on the light", 1.4, "en"),
    TranscriptionCompleted("item_u", "", 0.4, "en"),
    TranscriptionCompleted("item_u", "on", 0.4, "en", ((b" on", -0.25), (b"\xc3", -1.5))),
    TranscriptionFailed("item_u", "engine_failed", "asr engine failed"),
    ResponseCreated("resp_1", "audio"),
    OutputItemAdded("resp_1", 0, STARTED, "item_u"),
    OutputTextDelta("resp_1", "item_a", 0, "audio", "It is "),
    OutputAudioDelta("resp_1", "item_a", 0, NOISE),
    OutputItemDone("resp_1", 0, SPOKEN, "item_u", has_audio=True),
    OutputItemAdded("resp_1", 1, CALL, "item_a"),
    FunctionCallArgumentsDelta("resp_1", "item_f", 1, "call_1", CALL.arguments),
    OutputItemDone("resp_1", 1, CALL, "item_a", has_audio=False),
    ResponseDone("resp_1", "completed", "audio", (SPOKEN,), usage=TokenUsage(3, 4)),
    ResponseDone("resp_1", "cancelled", "audio", reason="turn_detected"),
    ResponseDone("resp_1", "failed", "audio", error_code="engine_failed", error_message="no"),
    ResponseDone("resp_1", "incomplete", "text", reason="max_output_tokens"),
    ResponseCreated("resp_2", "text", ResponseParameters(False, {"a": "b"}, 7, "anna")),
    OutputItemAdded("resp_2", 0, STARTED, None),
    OutputTextDelta("resp_2", "item_a", 0, "text", "It is "),
    OutputItemDone("resp_2", 0, TYPED, None, has_audio=False),
    ResponseDone("resp_2", "completed", "text", (TYPED,)),
    PlayoutStarted("resp_1"),
    PlayoutStopped("resp_1"),
    PlayoutCleared("resp_1"),
    TRACE,
    RateLimits((RateLimit("requests", 60, 59, 1.5), RateLimit("tokens", 150_000, 149_984, 0.0))),
    ErrorEvent("engine_crashed", "it is being restarted"),
]
