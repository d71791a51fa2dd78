// What a click on the home does: switch a device, tick an item off, cancel a timer. The change comes
// back with the home's stream.

import { request } from "../server/api.js";

export class HomeButtons {
  /** @param {(error: import("../server/api.js").Refused) => void} onRefused */
  constructor(onRefused) {
    this.onRefused = onRefused;
  }

  /**
   * @param {string} id
   * @param {"on" | "off"} state
   */
  switch(id, state) {
    return this.#ask("PUT", `entities/${encodeURIComponent(id)}`, { state });
  }

  /** @param {import("./household.js").ShoppingItem} item */
  tick({ id, done }) {
    return this.#ask("PUT", `shopping_list/${encodeURIComponent(id)}`, { done: !done });
  }

  /** @param {string} id */
  cancelTimer(id) {
    return this.#ask("DELETE", `timers/${encodeURIComponent(id)}`);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   */
  async #ask(method, path, body) {
    const json = body && {
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json" },
    };
    try {
      await request(`/earshot/home/${path}`, { method, ...json });
    } catch (/** @type {any} */ error) {
      // Someone else was faster: the thing is gone, and the stream shows it.
      if (error.status !== 404) this.onRefused(error);
    }
  }
}
