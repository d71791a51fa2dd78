// Where a turn's milliseconds went: a table whose cells are drawn as bars on one time axis.

import { STAGES } from "../conversation/reducer.js";
import { h } from "./keyed.js";
import { formatMs, t } from "../words/translate.js";

const TICKS = 5; // more labels than this touch each other on a phone
const SHORTEST = 0.6; // percent; a stage of half a millisecond must still be seen

/** One turn's stages; `isOpen` shows the rows, otherwise only the strip in one line. */
export function waterfall(trace, isOpen) {
  const spans = STAGES.flatMap((name) => trace.stages.filter((span) => span.stage === name));
  const scale = scaleOf(spans);
  return h(
    "details",
    { class: "waterfall", "data-testid": "waterfall", open: isOpen },
    h(
      "summary",
      {},
      h("span", { class: "latency", "data-testid": "latency" }, headline(trace)),
      strip(spans, scale),
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
    spans.some(isAhead)
      ? h(
          "p",
          { class: "ahead-note", "data-testid": "ahead-note" },
          h("span", { class: "swatch", "aria-hidden": "true" }),
          " ",
          t("ahead"),
        )
      : null,
  );
}

/** Work on an answer while it was not sure that the user had finished. */
const isAhead = (span) => span.is_speculative === true;

/** The session's medians: a number per stage with a bar against the longest. */
export function medianTable({ count, latency_ms: latency, latency_p95_ms: p95, stages }) {
  if (!count) return h("p", { class: "nothing" }, t("no_medians"));
  const longest = Math.max(...Object.values(stages), 1);
  const rows = STAGES.filter((name) => name in stages).map((name) => {
    const bar = place(h("span", { class: `bar ${name}` }), 0, (100 * stages[name]) / longest);
    return h(
      "tr",
      { "data-testid": `median-${name}` },
      h("th", { scope: "row" }, t(`stage_${name}`)),
      h("td", { class: "lane", "aria-hidden": "true" }, bar),
      h("td", { class: "ms" }, formatMs(stages[name])),
    );
  });
  const total =
    latency === null
      ? null
      : h(
          "p",
          { class: "big", "data-testid": "median-latency" },
          h("strong", {}, formatMs(latency)),
          " ",
          t("response_latency"),
          " · ",
          h("span", { "data-testid": "p95-latency" }, t("latency_p95", { ms: formatMs(p95) })),
        );
  return h("div", {}, total, h("table", { class: "rows" }, h("tbody", {}, ...rows)));
}

function headline(trace) {
  if (trace.response_latency_ms === null || trace.response_latency_ms === undefined) {
    return t("where_time");
  }
  const isVoice = trace.stages.some((span) => span.stage === "playout" || span.stage === "tts");
  return t(isVoice ? "first_sound" : "first_text", { ms: formatMs(trace.response_latency_ms) });
}

/** The axis runs from the end of speech, or earlier if work began earlier, to the last end. */
function scaleOf(spans) {
  const from = Math.min(0, ...spans.map((span) => span.start_ms));
  const to = Math.max(from + 1, ...spans.map((span) => span.end_ms));
  return { from, to, percent: (ms) => (100 * (ms - from)) / (to - from) };
}

function strip(spans, scale) {
  return h(
    "span",
    { class: "strip", "aria-hidden": "true" },
    ...spans.map((span) => bar(span, scale)),
  );
}

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

function bar(span, scale) {
  const left = scale.percent(span.start_ms);
  return place(
    h("span", { class: `bar ${span.stage}${isAhead(span) ? " ahead" : ""}` }),
    left,
    scale.percent(span.end_ms) - left,
  );
}

// Through the style object: the page's policy allows no style attributes.
function place(element, left, width) {
  const seen = Math.max(width, SHORTEST);
  element.style.left = `${Math.min(left, 100 - seen)}%`;
  element.style.width = `${seen}%`;
  return element;
}

function ticks({ from, to, percent }) {
  const step = niceStep((to - from) / TICKS);
  const marks = [];
  for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) {
    const mark = h("span", { class: "tick" }, String(Math.round(ms)));
    mark.style.left = `${percent(ms)}%`;
    marks.push(mark);
  }
  return marks;
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw);
}
