// The server's devices, live, and requests about them.

import { getJson, pause, request, serverSent } from "../server/api.js";

const RETRY_MS = 3_000;
// Longest wait while the server answers that it has no list: it may have no devices, or a proxy answers
// while its server restarts.
const MAX_ABSENT_MS = 60_000;
const ACTION_MS = 60_000; // the server waits 20 s for a device to accept an announcement

/** Maintains `devices` and `areDevicesLive` of the store. */
export class DevicesFeed {
  /** @param {import("../app.js").PageStore} store */
  constructor(store) {
    this.store = store;
    /** @type {AbortController | null} ends the stream of now */
    this.watching = null;
  }

  /** Follows the server's list. Called again after the user entered a key. */
  watch() {
    this.watching?.abort();
    this.watching = new AbortController();
    this.#follow(this.watching.signal);
  }

  /**
   * Sends a request and then loads the list again.
   *
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   * @returns {Promise<any>} the server's answer; rejects with `Refused`
   */
  async send(method, path, body) {
    const content = body && {
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
    };
    const response = await request(path, { method, limitMs: ACTION_MS, ...content });
    const answer = response.status === 204 ? {} : await response.json();
    const { devices } = await getJson("/v1/devices");
    this.store.set({ devices });
    return answer;
  }

  /** Receives the list until `signal` is aborted or a key is missing. @param {AbortSignal} signal */
  async #follow(signal) {
    let waitMs = RETRY_MS;
    while (!signal.aborted) {
      try {
        for await (const { event, data } of serverSent("/v1/devices/events", signal)) {
          if (event !== "devices") continue;
          waitMs = RETRY_MS;
          this.store.set({ devices: JSON.parse(data).devices, areDevicesLive: true });
        }
      } catch (/** @type {any} */ error) {
        if (signal.aborted) return;
        if ([401, 403].includes(error.status)) return; // another part of the page asks for the key
        if (error.status === 404 && !this.store.state.devices) {
          waitMs = Math.min(2 * waitMs, MAX_ABSENT_MS);
        }
      }
      this.store.set({ areDevicesLive: false });
      await pause(waitMs, signal);
    }
  }
}
