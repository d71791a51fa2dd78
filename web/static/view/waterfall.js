// The timing of a turn: a table of its stages, whose cells are drawn as bars on one time axis.

import { STAGES } from "../conversation/reducer.js";
import { formatMs, t } from "../words/translate.js";
import { h } from "./keyed.js";

/**
 * @typedef {import("../conversation/reducer.js").Trace} Trace
 * @typedef {import("../conversation/reducer.js").Span} Span
 * @typedef {{ from: number, to: number, percent: (ms: number) => number }} Scale
 *   a time axis: its first and last moment in ms, and how far from the left a moment lies
 */

const MAX_TICKS = 5; // with more, the labels touch each other on a phone
const MIN_WIDTH_PERCENT = 0.6; // of a bar, so that a stage of half a millisecond is visible

/**
 * Returns the stages of one turn.
 *
 * @param {Trace} trace
 * @param {boolean} isOpen true shows the rows, false only the strip in one line
 * @param {(isOpen: boolean) => void} [onToggle] called when the user opens or closes it
 */
export function waterfall(trace, isOpen, onToggle = () => {}) {
  const spans = STAGES.flatMap((name) => trace.stages.filter((span) => span.stage === name));
  const scale = scaleOf(spans);
  /** @param {Event} event */
  const click = ({ currentTarget }) => {
    const details = /** @type {HTMLElement} */ (currentTarget).parentElement;
    onToggle(!(/** @type {HTMLDetailsElement} */ (details).open));
  };
  return h(
    "details",
    { class: "waterfall", "data-testid": "waterfall", open: isOpen },
    h(
      "summary",
      { click },
      h("span", { class: "latency", "data-testid": "latency" }, headline(trace)),
      h(
        "span",
        { class: "strip", "aria-hidden": "true" },
        ...spans.map((span) => bar(span, scale)),
      ),
    ),
    h(
      "table",
      { class: "rows" },
      h("caption", { class: "sr-only" }, t("where_time")),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, h("span", { class: "sr-only" }, t("stage"))),
          h("td", { class: "axis", "aria-hidden": "true" }, ...ticks(scale)),
          h("th", { scope: "col" }, h("span", { class: "sr-only" }, t("time"))),
        ),
      ),
      h("tbody", {}, ...spans.map((span) => row(span, scale))),
    ),
    spans.some(isAhead) &&
      h(
        "p",
        { class: "ahead-note", "data-testid": "ahead-note" },
        h("span", { class: "swatch", "aria-hidden": "true" }),
        " ",
        t("ahead"),
      ),
  );
}

/**
 * Returns a bar that begins at `left` percent and is `width` percent long.
 *
 * @param {string} name class of the bar
 * @param {number} left
 * @param {number} width
 */
export function barAt(name, left, width) {
  const shown = Math.max(width, MIN_WIDTH_PERCENT);
  const style = { left: `${Math.min(left, 100 - shown)}%`, width: `${shown}%` };
  return h("span", { class: `bar ${name}`, style });
}

/**
 * Returns whether this work was speculative: done before the turn was certainly over.
 *
 * @param {Span} span
 */
const isAhead = (span) => span.is_speculative === true;

/** Returns the line above the bars: the response latency, if it is known. @param {Trace} trace */
function headline(trace) {
  const { response_latency_ms: latency, stages } = trace;
  if (latency === null || latency === undefined) return t("where_time");
  const isVoice = stages.some((span) => span.stage === "playout" || span.stage === "tts");
  return t(isVoice ? "first_sound" : "first_text", { ms: formatMs(latency) });
}

/**
 * Returns the axis: from the end of speech, or earlier if work began earlier, to the last end.
 *
 * @param {Span[]} spans
 * @returns {Scale}
 */
function scaleOf(spans) {
  const from = Math.min(0, ...spans.map((span) => span.start_ms));
  const to = Math.max(from + 1, ...spans.map((span) => span.end_ms));
  return { from, to, percent: (ms) => (100 * (ms - from)) / (to - from) };
}

/**
 * Returns the table row of one stage: name, bar, time taken.
 *
 * @param {Span} span
 * @param {Scale} scale
 */
function row(span, scale) {
  const values = {
    stage: t(`stage_${span.stage}`),
    from: formatMs(span.start_ms),
    to: formatMs(span.end_ms),
    ms: formatMs(span.end_ms - span.start_ms),
  };
  return h(
    "tr",
    {
      key: span.stage,
      "data-testid": `stage-${span.stage}`,
      "data-ms": (span.end_ms - span.start_ms).toFixed(1),
      "data-ahead": String(isAhead(span)),
      tabindex: "0",
    },
    h("th", { scope: "row" }, values.stage),
    h(
      "td",
      { class: "lane", "aria-hidden": "true" },
      bar(span, scale),
      h("span", { class: "tip" }, t(isAhead(span) ? "from_to_ahead" : "from_to", values)),
    ),
    h("td", { class: "ms" }, values.ms),
  );
}

/**
 * @param {Span} span
 * @param {Scale} scale
 */
function bar(span, scale) {
  const left = scale.percent(span.start_ms);
  const name = isAhead(span) ? `${span.stage} ahead` : span.stage;
  return barAt(name, left, scale.percent(span.end_ms) - left);
}

/** Returns the labels of the axis. @param {Scale} scale */
function ticks({ from, to, percent }) {
  const step = niceStep((to - from) / MAX_TICKS);
  const marks = [];
  for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) {
    marks.push(
      h("span", { class: "tick", style: { left: `${percent(ms)}%` } }, String(Math.round(ms))),
    );
  }
  return marks;
}

/** Returns `raw` rounded up to one of 1, 2, 5, 10, 20, ... @param {number} raw */
function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw) ?? 10 * power;
}
