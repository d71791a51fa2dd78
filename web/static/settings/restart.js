// Starts the server again while settings wait for it, and waits until it is back.

import { getJson, pause, request } from "../server/api.js";
import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";
import { button, result } from "./language_model.js";

/** @typedef {import("./settings.js").Report} Report */

const SETTINGS = "/v1/settings";
const RESTART = "/v1/server/restart";
const CHECK_MS = 60_000; // the server loads the voice to see whether it would start
const START_MS = 90_000; // how long a start may take after the drain; most take seconds
const ASK_EVERY_MS = 1_000;
const ANSWER_MS = 5_000;

/** @param {Report} report */
export const waitsForRestart = ({ fields }) => fields.some((one) => one.is_pending);

export class RestartPanel {
  /** @type {{ text: string, isBad: boolean } | null} */
  #result = null;
  #isBusy = false;

  /**
   * @param {object} parts
   * @param {() => void} parts.onChange called when there is something new to draw
   * @param {(report: Report) => void} parts.onBack called when the server runs with the saved settings
   */
  constructor({ onChange, onBack }) {
    this.onChange = onChange;
    this.onBack = onBack;
  }

  /** Describes the panel; null if nothing waits. @param {Report} report */
  panel(report) {
    if (!waitsForRestart(report) && !this.#isBusy) return null;
    return h(
      "div",
      { key: "restart", class: "model-panel" },
      h("p", { class: "setting-help" }, t("set_restart_waits")),
      button("set_restart_now", "server-restart", this.#isBusy, () => this.#restart()),
      result(this.#result),
    );
  }

  async #restart() {
    this.#show(t("set_restarting"), true);
    try {
      const answer = await request(RESTART, { method: "POST", limitMs: CHECK_MS });
      const { drain_timeout_s: drainS } = await answer.json();
      const report = await started(Date.now() + 1000 * drainS + START_MS);
      this.#show("", false);
      this.onBack(report);
    } catch (/** @type {any} */ error) {
      const isLost = error.code === "still_lost";
      const reason = error.message || error.code;
      this.#show(isLost ? t("set_not_back") : t("d_failed", { reason }), false, true);
    }
  }

  /**
   * @param {string} text
   * @param {boolean} isBusy
   * @param {boolean} [isBad]
   */
  #show(text, isBusy, isBad = false) {
    this.#result = text ? { text, isBad } : null;
    this.#isBusy = isBusy;
    this.onChange();
  }
}

/**
 * Returns the settings once no setting waits any more. The old server still answers while it drains.
 *
 * @param {number} untilMs
 * @returns {Promise<Report>}
 */
async function started(untilMs) {
  const { signal } = new AbortController();
  while (Date.now() < untilMs) {
    await pause(ASK_EVERY_MS, signal);
    try {
      const report = await getJson(SETTINGS, { limitMs: ANSWER_MS });
      if (!waitsForRestart(report)) return report;
    } catch {
      // There is no server between the drain and the start.
    }
  }
  throw Object.assign(new Error(), { code: "still_lost" });
}
