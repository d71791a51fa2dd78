// The panel of medians: a number for each stage, with a bar relative to the longest.

import { byId, h, update } from "../view/keyed.js";
import { barAt } from "../view/waterfall.js";
import { formatMs, t } from "../words/translate.js";
import { medians } from "./medians.js";
import { STAGES, tracesOf } from "./reducer.js";

export class MediansPanel {
  constructor() {
    /** The traces that the panel shows now. @type {import("./reducer.js").Trace[] | null} */
    this.measured = null;
    this.language = "";
  }

  /**
   * @param {import("./reducer.js").Conversation} conversation
   * @param {string} language
   */
  show(conversation, language) {
    const traces = tracesOf(conversation);
    const before = this.measured;
    const isSame =
      before !== null &&
      before.length === traces.length &&
      traces.every((trace, index) => trace === before[index]);
    if (isSame && language === this.language) return; // nothing changed: do not sort again at each word
    this.measured = traces;
    this.language = language;
    const values = medians(conversation);
    const { count } = values;
    update(byId("medians"), {}, [medianTable(values)]);
    const text = count ? t(count === 1 ? "turn_count" : "turns_count", { n: count }) : "";
    update(byId("medians-count"), {}, [text]);
  }
}

/** @param {ReturnType<typeof medians>} values */
function medianTable({ count, latency_ms: latency, latency_p95_ms: p95, stages }) {
  if (!count) return h("p", { class: "nothing" }, t("no_medians"));
  const longest = Math.max(...Object.values(stages), 1);
  const rows = STAGES.filter((name) => name in stages).map((name) =>
    h(
      "tr",
      { key: name, "data-testid": `median-${name}` },
      h("th", { scope: "row" }, t(`stage_${name}`)),
      h(
        "td",
        { class: "lane", "aria-hidden": "true" },
        barAt(name, 0, (100 * stages[name]) / longest),
      ),
      h("td", { class: "ms" }, formatMs(stages[name])),
    ),
  );
  return h(
    "div",
    {},
    latency !== null && p95 !== null
      ? h(
          "p",
          { class: "big", "data-testid": "median-latency" },
          h("strong", {}, formatMs(latency)),
          " ",
          t("response_latency"),
          " · ",
          h("span", { "data-testid": "p95-latency" }, t("latency_p95", { ms: formatMs(p95) })),
        )
      : null,
    h("table", { class: "rows" }, h("tbody", {}, ...rows)),
  );
}
