// A device's last turn: the moments that the server sends become stages for the waterfall.

// Each stage with the moment that ends it, and the moments that may begin it. The first one that the
// server sent counts.
/** @type {[stage: string, end: string, begins: string[]][]} */
const SPANS = [
  ["endpoint_wait", "endpoint", ["speech_end"]],
  ["asr", "asr_final", ["candidate", "endpoint", "speech_end"]],
  ["llm", "llm_first_token", ["asr_final", "speech_end"]],
  ["tts", "tts_first_audio", ["llm_first_token"]],
  ["playout", "playout_start", ["gate_open", "tts_first_audio"]], // sound of a draft waits until the turn is over
];

/**
 * Returns the trace of a turn, in the form that the waterfall draws. Null if there is nothing to draw.
 *
 * @param {Record<string, number> | null} timing ms from the end of speech, by moment
 * @returns {import("../conversation/reducer.js").Trace | null}
 */
export function traceOf(timing) {
  if (!timing) return null;
  /** @type {Record<string, number>} */
  const at = { speech_end: 0, ...timing };
  const stages = SPANS.flatMap(([stage, end, begins]) => {
    const begin = begins.find((name) => name in at);
    if (!(end in at) || begin === undefined || at[end] < at[begin]) return [];
    const isAhead = stage !== "endpoint_wait" && "endpoint" in at && at[begin] < at.endpoint;
    return [{ stage, start_ms: at[begin], end_ms: at[end], is_speculative: isAhead }];
  });
  if (!stages.length) return null;
  return { stages, response_latency_ms: at.playout_start ?? at.llm_first_token ?? null };
}
