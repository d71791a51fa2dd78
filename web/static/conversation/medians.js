// Medians over the turns of a conversation.

import { STAGES, tracesOf } from "./reducer.js";

/**
 * Returns the count of answered turns, their median and 95th percentile latency, and the medians of
 * their stages by name.
 *
 * @param {import("./reducer.js").Conversation} conversation
 */
export function medians(conversation) {
  const traces = tracesOf(conversation);
  /** @type {Record<string, number>} */
  const stages = {};
  for (const name of STAGES) {
    const spans = traces.flatMap((trace) => trace.stages.filter((span) => span.stage === name));
    if (spans.length) stages[name] = median(spans.map((span) => span.end_ms - span.start_ms));
  }
  const latencies = traces.flatMap(({ response_latency_ms: ms }) => (ms === null ? [] : [ms]));
  const [latency_ms, latency_p95_ms] = latencies.length
    ? [median(latencies), percentile(latencies, 95)]
    : [null, null];
  return { count: traces.length, latency_ms, latency_p95_ms, stages };
}

/**
 * Returns the smallest value that `percent` of all values do not exceed.
 *
 * @param {number[]} values
 * @param {number} percent
 */
export function percentile(values, percent) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.ceil((percent / 100) * sorted.length) - 1];
}

/** @param {number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
