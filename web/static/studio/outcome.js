// What became of a text, in words: how far it is, what its parts took, why it was refused.

import { h } from "../view/keyed.js";
import { formatMs, formatNumber, formatSeconds, t } from "../words/translate.js";

/**
 * @typedef {import("./reading.js").Reading} Reading
 * @typedef {import("./fields.js").FieldName} FieldName
 */

/** @type {Record<import("./reading.js").ReadingState, string>} */
const STATES = {
  waiting: "st_waiting",
  full: "st_full",
  speaking: "st_speaking",
  spoken: "st_spoken",
  stopped: "st_stopped",
  failed: "",
};

/** The field of the studio that shows a refusal, by the name that the server gives. @type {Record<string, FieldName>} */
const FIELDS = { input: "text", voice: "voice", language: "language", speed: "speed" };

/** The page's words for the refusals that a user can meet; the others are shown in the server's. @type {Record<string, string>} */
const REFUSALS = { "voice voice_not_found": "st_voice_gone", "input invalid_value": "st_nothing" };

/**
 * Returns what is wrong, and the field that it is about, if the server named one.
 *
 * @param {any} error
 * @param {boolean} hasBegun whether sound had come before
 * @returns {{ field: FieldName | null, text: string }}
 */
export function refusal({ code, message, param }, hasBegun = false) {
  const known = REFUSALS[`${param} ${code}`];
  const field = FIELDS[param] ?? null;
  if (known) return { field, text: t(known) };
  if (field) return { field, text: message };
  if (code === "unreachable") return { field, text: t(hasBegun ? "st_cut" : "m_unreachable") };
  return { field, text: t("d_failed", { reason: message || code }) };
}

/** Says how far a text is. @param {Reading} reading */
export const stateText = ({ state }) => (STATES[state] ? t(STATES[state]) : "");

/** Says when the server is asked again; empty while it is not full. @param {Reading} reading */
export const againText = ({ state, againS }) =>
  state === "full" ? t("st_again", { time: formatSeconds(againS) }) : "";

/** Returns what was measured so far, as rows of a list. @param {Reading} reading */
export function measured({ firstMs, wholeMs, waitedMs, words, sound, player, isOver }) {
  /** @type {[key: string, value: string][]} */
  const rows = [];
  if (waitedMs) rows.push(["st_waited", formatMs(waitedMs)]);
  if (firstMs !== null) rows.push(["st_first", formatMs(firstMs)]);
  if (wholeMs !== null) {
    rows.push(["st_whole", formatMs(wholeMs)]);
    rows.push(["st_words", formatNumber(words)]);
    rows.push(["st_length", formatSeconds(Number(sound.seconds.toFixed(1)))]);
    rows.push(["st_ratio", `${formatNumber((1000 * sound.seconds) / wholeMs)} ×`]);
  }
  if (isOver && player.pauses) rows.push(["st_pauses", formatNumber(player.pauses)]);
  return rows.map(([key, value]) =>
    h("div", { key, "data-testid": key }, h("dt", {}, t(key)), h("dd", {}, value)),
  );
}
