"""How turns are to end: what clients send of it, and what they are shown."""

from dataclasses import replace
from typing import Any, Literal

from pipeline.shared.settings import TurnDetection
from signaling.realtime.protocol.wire import updated_value
from signaling.realtime.session.schema import SemanticVad, ServerVad


def with_turn_detection(now: TurnDetection | None, sent: ServerVad | SemanticVad) -> TurnDetection:
    """Another kind begins with its own defaults; the same kind keeps what was not sent."""
    kind: Literal["server_vad", "semantic_vad"] = (
        "server_vad" if isinstance(sent, ServerVad) else "semantic_vad"
    )
    fresh = TurnDetection(kind=kind)
    now = now if now and now.kind == kind else fresh
    both = replace(
        now,
        create_response=updated_value(
            sent.create_response, now.create_response, fresh.create_response
        ),
        interrupt_response=updated_value(
            sent.interrupt_response, now.interrupt_response, fresh.interrupt_response
        ),
    )
    if isinstance(sent, SemanticVad):
        return replace(
            both, eagerness=updated_value(sent.eagerness, now.eagerness, fresh.eagerness)
        )
    return replace(
        both,
        threshold=updated_value(sent.threshold, now.threshold, fresh.threshold),
        prefix_padding_ms=updated_value(
            sent.prefix_padding_ms, now.prefix_padding_ms, fresh.prefix_padding_ms
        ),
        silence_ms=updated_value(sent.silence_duration_ms, now.silence_ms, fresh.silence_ms),
        idle_timeout_ms=updated_value(
            sent.idle_timeout_ms, now.idle_timeout_ms, fresh.idle_timeout_ms
        ),
    )


def turn_detection_json(detection: TurnDetection | None) -> dict[str, Any] | None:
    if detection is None:
        return None
    both: dict[str, Any] = {
        "type": detection.kind,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    if detection.kind == "semantic_vad":
        return {**both, "eagerness": detection.eagerness}
    return {
        **both,
        "threshold": detection.threshold,
        "prefix_padding_ms": detection.prefix_padding_ms,
        "silence_duration_ms": detection.silence_ms,
        "idle_timeout_ms": detection.idle_timeout_ms,
    }
