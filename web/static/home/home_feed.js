// The home as the server streams it, independent of any call.

import { isAway, pause, serverSent } from "../server/api.js";

// Wait after a stream that was live. It is short, because a proxy may have ended the stream, and because
// the next try shows whether the server is lost.
const AGAIN_MS = 250;
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000]; // waits after failures in a row

/** Maintains `home` and `isHomeLive` of the store. */
export class HomeFeed {
  /**
   * @param {import("../app.js").PageStore} store
   * @param {{ onKeyWanted: () => void, onGone: () => void, onBack: () => void }} handlers
   *   `onKeyWanted` when the server wants a key; `onGone` when it cannot be reached any more, within
   *   a second if its port is closed; `onBack` when it can again
   */
  constructor(store, { onKeyWanted, onGone, onBack }) {
    this.store = store;
    this.onKeyWanted = onKeyWanted;
    this.onGone = onGone;
    this.onBack = onBack;
    this.isGone = false;
    /** @type {AbortController | null} ends the stream of now */
    this.watching = null;
  }

  /** Watches the home, with names in `language`, until the next call. @param {string} language */
  async watch(language) {
    this.watching?.abort();
    const watching = new AbortController();
    this.watching = watching;
    const { signal } = watching;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      let isAnswered = false;
      try {
        const path = `/earshot/home/events?language=${language}`;
        for await (const { event, data } of serverSent(path, signal)) {
          if (event !== "home") continue;
          attempt = -1; // the stream is live: the next failure is the first one again
          this.#show(JSON.parse(data));
        }
      } catch (/** @type {any} */ error) {
        if (signal.aborted) return;
        if (error.status === 401) {
          this.onKeyWanted();
          return;
        }
        isAnswered = !isAway(error);
      }
      if (signal.aborted) return;
      this.store.set({ isHomeLive: false });
      const wasLive = attempt < 0;
      if (!wasLive && !isAnswered) this.#lost();
      const waitMs = wasLive ? AGAIN_MS : RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)];
      await pause(waitMs, signal);
    }
  }

  /** @param {import("./home.js").Home} home */
  #show(home) {
    this.store.set({ home, isHomeLive: true });
    if (!this.isGone) return;
    this.isGone = false;
    this.onBack();
  }

  #lost() {
    if (this.isGone) return;
    this.isGone = true;
    this.onGone();
  }
}
