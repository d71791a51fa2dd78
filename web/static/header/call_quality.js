// The indicator of the connection's quality, and the figures behind it.

import { figures, graded } from "../call/quality.js";
import { byId, h, update } from "../view/keyed.js";
import { Popover } from "../view/popover.js";
import { formatMs, formatNumber, t } from "../words/translate.js";

/**
 * @typedef {import("../call/quality.js").Figures} Figures
 * @typedef {import("../call/quality.js").Verdict} Verdict
 */

export class CallQuality {
  /** @param {import("../app.js").PageStore} store */
  constructor(store) {
    this.button = byId("quality");
    this.details = new Popover(this.button, byId("quality-details"));
    store.watch(["quality", "connection", "language"], ({ quality, connection }) => {
      const known = figures(quality);
      this.#show(known, connection === "open" ? graded(known) : null);
    });
  }

  /**
   * Draws the indicator and the figures. Without a verdict both are hidden.
   *
   * @param {Figures} known
   * @param {Verdict | null} verdict
   */
  #show(known, verdict) {
    update(this.button, { hidden: verdict === null });
    if (verdict === null) {
      this.details.close();
      return;
    }
    const grade = t(`q_${verdict.grade}`);
    const label = t("q_label", { grade });
    update(this.button, { "data-grade": verdict.grade, "aria-label": label });
    update(byId("quality-grade"), {}, [grade]);
    const because = verdict.because ? `q_because_${verdict.because}` : "q_all_good";
    update(byId("quality-verdict"), {}, [t(because)]);
    update(byId("quality-ways"), {}, ways(known));
    update(byId("quality-facts"), {}, facts(known));
  }
}

/** Returns one row for each figure that differs by direction. @param {Figures} known */
const ways = (known) => [
  way("loss", percent(known.loss_up), percent(known.loss_down)),
  way("jitter", inMs(known.jitter_up), inMs(known.jitter_down)),
  way("buffer", inMs(known.buffer_up), inMs(known.buffer_down)),
];

/**
 * Returns a row of the table.
 *
 * @param {string} name of the figure
 * @param {string} up its value on the way to the server
 * @param {string} down its value on the way from the server
 */
const way = (name, up, down) =>
  h(
    "tr",
    { key: name },
    h("th", { scope: "row" }, t(`q_${name}`)),
    h("td", { "data-testid": `quality-${name}_up` }, up),
    h("td", { "data-testid": `quality-${name}_down` }, down),
  );

/** Returns the figures that have no direction, as names and values. @param {Figures} known */
function facts(known) {
  const transport = [TRANSPORTS[known.transport], known.protocol?.toUpperCase()];
  /** @type {[string, string][]} */
  const texts = [
    ["round_trip", inMs(known.round_trip)],
    ["codec", known.codec ? codecName(known.codec) : "–"],
    ["path", known.local && known.remote ? `${known.local} – ${known.remote}` : "–"],
    ["transport", transport.filter(Boolean).join(", ")],
  ];
  return texts.flatMap(([name, text]) => [
    h("dt", { key: name }, t(`q_${name}`)),
    h("dd", { key: name, "data-testid": `quality-${name}` }, text),
  ]);
}

/** @type {Record<string, string>} */
const TRANSPORTS = { webrtc: "WebRTC", websocket: "WebSocket" };

/** @param {string} name */
const codecName = (name) => (name.toLowerCase() === "opus" ? "Opus" : name.toUpperCase());
/** @param {number | null} value in ms; null if it is not known */
const inMs = (value) => (value === null ? "–" : formatMs(value));
/** @param {number | null} value a share; null if it is not known */
const percent = (value) => (value === null ? "–" : `${formatNumber(100 * value)} %`);
