"""Text files in the format of the Triton ASR client, byte for byte, for the tools that read it.

`rtf-NAME.txt`, `recogs-NAME.txt`, `errs-NAME.txt`. Earshot adds `errs-cer-NAME.txt`: Triton's
client writes %WER for characters too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bench.asr.error_rates import ScoredText, errors_of
from bench.tools.stats import percentile
from bench.tools.word_errors import NOTHING, Pair

_HINT = (
    "Search below for sections starting with PER-UTT DETAILS:, "
    "SUBSTITUTIONS:, DELETIONS:, INSERTIONS:, PER-WORD STATS:"
)


def rtf_text(audio_s: float, wall_s: float, latencies_s: Sequence[float]) -> str:
    """Returns `rtf-NAME.txt`: the real-time factor, and percentiles of the latencies."""
    lines = [
        f"RTF: {wall_s / audio_s:.4f}",
        f"total_duration: {audio_s:.3f} seconds",
        f"({audio_s / 3600:.2f} hours)",
        f"processing time: {wall_s:.3f} seconds ({wall_s / 3600:.2f} hours)",
        f"latency_variance: {float(np.var(latencies_s)) * 1000:.2f}",
        *(
            f"latency_{percent}_percentile_ms: {percentile(latencies_s, percent) * 1000:.2f}"
            for percent in (50, 90, 95, 99)
        ),
        f"average_latency_ms: {float(np.mean(latencies_s)) * 1000:.2f}",
    ]
    return _joined(lines)


def recogs_text(texts: Iterable[ScoredText]) -> str:
    """Returns `recogs-NAME.txt`: references and hypotheses, as lists."""
    return _joined(
        line
        for text in _by_id(texts)
        for line in (
            f"{text.id}:\tref={list(text.reference)}",
            f"{text.id}:\thyp={list(text.hypothesis)}",
        )
    )


def errs_text(texts: Iterable[ScoredText], rate: str = "WER") -> str:
    """Returns `errs-NAME.txt`: all errors, by recording, by kind and by word."""
    texts = _by_id(texts)
    found = errors_of(texts)
    pairs = [pair for text in texts for pair in text.aligned()]
    lines = [
        f"%{rate} = {found.percent:.2f}",
        (
            f"Errors: {found.insertions} insertions, {found.deletions} deletions, "
            f"{found.substitutions} substitutions, over {found.reference_length} reference words "
            f"({found.correct} correct)"
        ),
        _HINT,
        "",
        "PER-UTT DETAILS: corr or (ref->hyp)  ",
        *(f"{text.id}:\t{_marked(text.aligned())}" for text in texts),
        "",
        "SUBSTITUTIONS: count ref -> hyp",
        *_counted(pair for pair in pairs if NOTHING not in pair and pair[0] != pair[1]),
        "",
        "DELETIONS: count ref",
        *_counted((reference,) for reference, hypothesis in pairs if hypothesis == NOTHING),
        "",
        "INSERTIONS: count hyp",
        *_counted((hypothesis,) for reference, hypothesis in pairs if reference == NOTHING),
        "",
        "PER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp",
        *_by_word(pairs),
    ]
    return _joined(lines)


def _marked(pairs: Sequence[Pair]) -> str:
    """Returns the text with errors in brackets; neighbouring errors share a pair of brackets."""
    parts: list[str] = []
    reference: list[str] = []
    hypothesis: list[str] = []
    for word, other in (*pairs, ("", "")):
        if word != other:
            reference += [word] if word != NOTHING else []
            hypothesis += [other] if other != NOTHING else []
            continue
        if reference or hypothesis:
            parts.append(f"({' '.join(reference) or NOTHING}->{' '.join(hypothesis) or NOTHING})")
            reference, hypothesis = [], []
        parts.append(word)
    return " ".join(parts[:-1])  # without the empty pair that ends the row


def _counted(found: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yields the most frequent first."""
    ordered = sorted(((count, key) for key, count in Counter(found).items()), reverse=True)
    for count, key in ordered:
        yield f"{count}   {' -> '.join(key)}"


def _by_word(pairs: Iterable[Pair]) -> Iterator[str]:
    """Yields the words with most errors first."""
    correct: Counter[str] = Counter()
    in_reference: Counter[str] = Counter()
    in_hypothesis: Counter[str] = Counter()
    for reference, hypothesis in pairs:
        correct[reference] += reference == hypothesis
        in_reference[reference] += 1
        in_hypothesis[hypothesis] += 1
    rows = []
    for word in (in_reference | in_hypothesis).keys() - {NOTHING}:
        wrong = in_reference[word] + in_hypothesis[word] - 2 * correct[word]
        rows.append((wrong, word))
    for wrong, word in sorted(rows, reverse=True):
        yield f"{word}   {correct[word]} {wrong} {in_reference[word]} {in_hypothesis[word]}"


def _by_id(texts: Iterable[ScoredText]) -> list[ScoredText]:
    return sorted(texts, key=lambda text: text.id)


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
