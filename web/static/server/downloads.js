// Downloads of recognisers: which can be fetched, how far each download is. A download belongs to the
// server and goes on if the page is closed.

import { getJson, request } from "./api.js";

/**
 * @typedef {{ name: string, kind: "asr" | "embed" | "rerank" | "clip", size_bytes: number, languages: string, is_multilingual: boolean,
 *   suits: string, is_installed: boolean, is_on_package_index: boolean }} Available
 * @typedef {{ model: string, state: "running" | "done" | "failed" | "cancelled", done_bytes: number,
 *   total_bytes: number, seconds_left: number | null, note: string, message: string }} Pull
 * @typedef {{ available: Available[], pulls: Pull[], free_bytes: number }} DownloadsReport
 */

const API = "/v1/models";
const LOOK_MS = 700; // between two looks at a running download

export class Downloads {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {import("../app.js").PageStore} store
   * @param {object} parts
   * @param {(model: string) => void} parts.onDone called when a download has succeeded
   * @param {(error: any) => void} parts.onRefused
   */
  constructor(store, { onDone, onRefused }) {
    this.store = store;
    this.onDone = onDone;
    this.onRefused = onRefused;
  }

  /** Asks the server, and again while something is downloaded. */
  async look() {
    clearTimeout(this.#timer);
    const before = this.store.state.downloads?.pulls ?? [];
    try {
      /** @type {DownloadsReport} */
      const report = await getJson(`${API}/pull`);
      this.store.set({ downloads: report });
      const wasRunning = (/** @type {string} */ model) =>
        before.some((one) => one.model === model && one.state === "running");
      for (const { model, state } of report.pulls)
        if (state === "done" && wasRunning(model)) this.onDone(model);
      if (report.pulls.some(({ state }) => state === "running"))
        this.#timer = setTimeout(() => this.look(), LOOK_MS);
    } catch {
      return; // the server is away, or waits for its key: other parts of the page say so
    }
  }

  /** Starts a download. @param {string} model */
  async pull(model) {
    // The answer comes at once; `look` asks how far it is, also after a reload of the page.
    const body = JSON.stringify({ model, stream: false });
    const headers = { "Content-Type": "application/json" };
    await this.#change(() => request(`${API}/pull`, { method: "POST", body, headers }));
  }

  /** @param {string} model */
  cancel(model) {
    return this.#change(() => request(`${API}/pull/${encoded(model)}`, { method: "DELETE" }));
  }

  /** Removes a model from the server's disk. @param {string} model */
  remove(model) {
    return this.#change(() => request(`${API}/${encoded(model)}`, { method: "DELETE" }));
  }

  /** @param {() => Promise<unknown>} change */
  async #change(change) {
    try {
      await change();
    } catch (error) {
      this.onRefused(error);
    }
    await this.look();
  }
}

/** Returns the download of a model, if one runs or ended lately. @param {DownloadsReport | null} report @param {string} model */
export const pullOf = (report, model) => report?.pulls.find((one) => one.model === model);

const encoded = encodeURIComponent;
