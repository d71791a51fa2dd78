// The indicator of how good the connection is, and the figures behind it.

import { byId, h, setText } from "../view/keyed.js";
import { formatMs, formatNumber, t } from "../words/translate.js";
import { figures, graded } from "../call/quality.js";

const GAP_PX = 8; // between the button and what it opens, and to the edge of the window

export class Network {
  constructor() {
    this.button = byId("quality");
    this.details = byId("quality-details");
    this.details.addEventListener(
      "beforetoggle",
      ({ newState }) => newState === "open" && this.#fill(),
    );
    this.details.addEventListener("toggle", ({ newState }) => newState === "open" && this.#place());
    addEventListener("resize", () => this.#isOpen() && this.#place());
  }

  /** `quality` as quality.js keeps it; `isOn`: whether there is a call. */
  show(quality, isOn) {
    this.known = figures(quality);
    const verdict = isOn ? graded(this.known) : null;
    this.verdict = verdict;
    this.button.hidden = verdict === null;
    if (verdict === null) {
      if (this.#isOpen()) this.details.hidePopover();
      return;
    }
    this.button.dataset.grade = verdict.grade;
    setText(byId("quality-grade"), t(`q_${verdict.grade}`));
    const label = t("q_label", { grade: t(`q_${verdict.grade}`) });
    if (this.button.getAttribute("aria-label") !== label) {
      this.button.setAttribute("aria-label", label);
    }
    if (this.#isOpen()) this.#fill();
  }

  #isOpen() {
    return this.details.matches(":popover-open");
  }

  #fill() {
    const { known, verdict } = this;
    setText(
      byId("quality-verdict"),
      t(verdict?.because ? `q_because_${verdict.because}` : "q_all_good"),
    );
    const ways = [
      ["loss", percent],
      ["jitter", inMs],
      ["buffer", inMs],
    ].map(([name, show]) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, t(`q_${name}`)),
        cell(`${name}_up`, show(known[`${name}_up`])),
        cell(`${name}_down`, show(known[`${name}_down`])),
      ),
    );
    byId("quality-ways").replaceChildren(...ways);
    const path = known.local && known.remote ? `${known.local} – ${known.remote}` : null;
    const facts = [
      ["round_trip", inMs(known.round_trip)],
      ["codec", known.codec ? codecName(known.codec) : "–"],
      ["path", path ?? "–"],
      [
        "transport",
        [TRANSPORTS[known.transport], known.protocol?.toUpperCase()].filter(Boolean).join(", "),
      ],
    ];
    byId("quality-facts").replaceChildren(
      ...facts.flatMap(([name, text]) => [
        h("dt", {}, t(`q_${name}`)),
        h("dd", { "data-testid": `quality-${name}` }, text),
      ]),
    );
  }

  /** Below its button, within the window. */
  #place() {
    const { left, bottom } = this.button.getBoundingClientRect();
    const widest = document.documentElement.clientWidth - this.details.offsetWidth - GAP_PX;
    this.details.style.left = `${Math.max(GAP_PX, Math.min(left, widest))}px`;
    this.details.style.top = `${bottom + GAP_PX}px`;
  }
}

const TRANSPORTS = { webrtc: "WebRTC", websocket: "WebSocket" };

const codecName = (name) => (name.toLowerCase() === "opus" ? "Opus" : name.toUpperCase());
const inMs = (value) => (value === null ? "–" : formatMs(value));
const percent = (value) => (value === null ? "–" : `${formatNumber(100 * value)} %`);
const cell = (name, text) => h("td", { "data-testid": `quality-${name}` }, text);
