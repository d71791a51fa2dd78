"""Section `[limits]`: how many requests of the REST API run at a time, and how long."""

from typing import Annotated

from msgspec import Meta

from core.access.limits import PlaceCounter
from server.config.types import Section
from web.openai.limits import RequestLimit, RequestLimits

MAX_REQUESTS = 100_000
"Above this the machine's sockets and memory end first."


class LimitsConfig(Section, frozen=True):
    """Settings of the REST API's limits. Each capability has its own, so that a flood of one leaves
    the others."""

    embeddings: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_REQUESTS,
            description=(
                "Maximum number of requests for embeddings at a time, those included that wait for"
                " the model. Further ones get status 429."
            ),
        ),
    ] = 1024  # a small model answers them in a second or two
    embeddings_timeout_s: Annotated[
        float,
        Meta(
            ge=0.1,
            le=86_400,
            description="Seconds after which a request for embeddings ends with status 504.",
        ),
    ] = 300.0  # 2048 long texts on a small machine
    rerank: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_REQUESTS,
            description="Maximum number of requests for reranking at a time.",
        ),
    ] = 256  # one request has a hundred documents
    rerank_timeout_s: Annotated[
        float,
        Meta(
            ge=0.1,
            le=86_400,
            description="Seconds after which a request for reranking ends with status 504.",
        ),
    ] = 300.0
    chat: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_REQUESTS,
            description=(
                "Maximum number of chat requests at a time, of all APIs for text together."
            ),
        ),
    ] = 64  # more would wait longer than their clients do
    chat_timeout_s: Annotated[
        float,
        Meta(
            ge=0.1,
            le=86_400,
            description=(
                "Seconds after which a chat request ends: with status 504, or in the middle of"
                " its stream."
            ),
        ),
    ] = 600.0  # OpenAI's clients wait as long
    transcriptions: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_REQUESTS,
            description="Maximum number of uploads to transcribe at a time.",
        ),
    ] = 64  # each may keep a file on the disk
    transcriptions_timeout_s: Annotated[
        float,
        Meta(
            ge=0.1,
            le=86_400,
            description="Seconds after which a transcription ends with status 504.",
        ),
    ] = 3600.0  # two hours of sound on a slow processor
    speech: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_REQUESTS,
            description=(
                "Maximum number of texts that are read to REST clients at a time. Below 16, which"
                " is the limit of all doors together, some places are left to devices."
            ),
        ),
    ] = 12
    speech_timeout_s: Annotated[
        float,
        Meta(
            ge=0.1,
            le=86_400,
            description=(
                "Seconds after which the reading of a text ends: with status 504, or in the middle"
                " of the file."
            ),
        ),
    ] = 600.0

    def as_limits(self, places: PlaceCounter | None = None) -> RequestLimits:
        """Returns the limits, which count from now on. `places`: counts for all gateways."""
        return RequestLimits(
            RequestLimit("embed", "embeddings", self.embeddings, self.embeddings_timeout_s, places),
            RequestLimit("rerank", "rerank", self.rerank, self.rerank_timeout_s, places),
            RequestLimit("llm", "chat", self.chat, self.chat_timeout_s, places),
            RequestLimit(
                "asr", "transcription", self.transcriptions, self.transcriptions_timeout_s, places
            ),
            RequestLimit("tts", "speech", self.speech, self.speech_timeout_s, places),
        )
