"""Summary of a run: numbers for JSON, a table for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.asr.error_rates import (
    ErrorCounts,
    ScoredText,
    characters,
    errors_of,
    kept_words,
    normalised,
    words,
)
from bench.asr.measure import ClipResult, CorpusRun
from bench.tools.stats import markdown, percentile

PERCENTILES = (50, 90, 95, 99)
"Percentiles of the latency that are reported."

Row = tuple[str, str]
"Row of the table: name and value."


def answered(run: CorpusRun) -> list[ClipResult]:
    """Returns the recordings that got an answer, right or wrong; the others have no latency."""
    return [result for result in run.results if not result.answer.error]


def scored_words(run: CorpusRun) -> list[ScoredText]:
    """Returns the raw words; a recording without an answer counts as an empty hypothesis."""
    return [ScoredText(r.clip.id, words(r.clip.text), words(r.answer.text)) for r in run.results]


def scored_characters(run: CorpusRun) -> list[ScoredText]:
    """Returns the raw characters; see `scored_words`."""
    return [
        ScoredText(r.clip.id, characters(r.clip.text), characters(r.answer.text))
        for r in run.results
    ]


def summary(
    run: CorpusRun, language: str | None, rejected_words: int | None = None
) -> dict[str, Any]:
    """Returns all measured values, as in the JSON file.

    language: overrides that of the recordings.
    rejected_words: words that the server decoded and rejected as noise; None: not known.
    """
    clean = [
        (
            normalised(r.clip.text, language or r.clip.language),
            normalised(r.answer.text, language or r.clip.language),
            r.clip.id,
        )
        for r in run.results
    ]
    shown = [r.answer for r in run.results if r.answer.partials]
    kept = [kept_words(answer.partials, answer.text) for answer in shown]
    total = sum(of for _, of in kept)
    return {
        "recordings": len(run.results),
        "failed": len(run.results) - len(answered(run)),
        "audio_s": run.audio_s,
        "wall_s": run.wall_s,
        "rtf": run.rtf,
        "wer": _errors(errors_of(ScoredText(i, words(s), words(g)) for s, g, i in clean)),
        "wer_raw": _errors(errors_of(scored_words(run))),
        "cer": _errors(errors_of(ScoredText(i, characters(s), characters(g)) for s, g, i in clean)),
        "cer_raw": _errors(errors_of(scored_characters(run))),
        "latency_ms": _spread([r.answer.took_ms for r in answered(run)]),
        "first_partial_ms": _spread(
            [a.first_partial_ms for a in shown if a.first_partial_ms is not None]
        ),
        "partial_words_kept": sum(words for words, _ in kept) / total if total else None,
        "utterances": sum(r.answer.utterances for r in run.results),
        "empty_utterances": sum(r.answer.empty_utterances for r in run.results),
        "empty_recordings": sum(not heard for said, heard, _ in clean if said),
        "rejected_words": rejected_words,
    }


def recordings(run: CorpusRun) -> list[dict[str, Any]]:
    """Returns the results of each recording, for the JSON file."""
    return [
        {
            "id": result.clip.id,
            "said": result.clip.text,
            "heard": result.answer.text,
            "audio_s": result.audio_s,
            "latency_ms": result.answer.took_ms,
            "first_partial_ms": result.answer.first_partial_ms,
            "partials": result.answer.partials,
            "utterances": result.answer.utterances,
            "empty_utterances": result.answer.empty_utterances,
            "error": result.answer.error,
        }
        for result in run.results
    ]


def table(found: Mapping[str, Any], what: str) -> str:
    """Returns a Markdown table. what: the meaning of the latency."""
    rows: list[Row] = [
        ("recordings, without an answer", f"{found['recordings']}, {found['failed']}"),
        ("recordings with speech, but no text", f"{found['empty_recordings']}"),
        ("audio, wall", f"{found['audio_s']:.1f} s, {found['wall_s']:.1f} s"),
        ("RTF = wall / audio", f"{found['rtf']:.4f}"),
    ]
    for name in ("wer", "cer"):
        for key, kind in ((name, "Whisper's normaliser"), (f"{name}_raw", "raw")):
            rows.append((f"{name.upper()}, {kind}", _rate(found[key])))
    rows += [(f"{what}, {key}", f"{value:.0f} ms") for key, value in _of(found, "latency_ms")]
    rows += [
        (f"first partial after speech begins, {key}", f"{value:.0f} ms")
        for key, value in _of(found, "first_partial_ms")
    ]
    if found["utterances"]:
        rows.append(
            ("utterances, without text", f"{found['utterances']}, {found['empty_utterances']}")
        )
    if found["rejected_words"] is not None:
        rows.append(("words that were decoded and rejected as noise", f"{found['rejected_words']}"))
    if found["partial_words_kept"] is not None:
        rows.append(("words of partials that stayed", f"{found['partial_words_kept']:.1%}"))
    return markdown(["what", "measured"], rows)


def _of(found: Mapping[str, Any], name: str) -> Sequence[tuple[str, float]]:
    return list((found[name] or {}).items())


def _rate(errors: Mapping[str, object]) -> str:
    return (
        f"{errors['percent']:.2f} % ({errors['insertions']} ins, {errors['deletions']} del, "
        f"{errors['substitutions']} sub of {errors['said']})"
    )


def _errors(found: ErrorCounts) -> dict[str, Any]:
    return {
        "percent": found.percent,
        "insertions": found.insertions,
        "deletions": found.deletions,
        "substitutions": found.substitutions,
        "said": found.reference_length,
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    return (
        {f"p{percent}": percentile(values, percent) for percent in PERCENTILES} if values else None
    )
