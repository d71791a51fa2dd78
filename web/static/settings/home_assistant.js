// Finds Home Assistant in the server's network.

import { request } from "../server/api.js";
import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";
import { button, result } from "./language_model.js";

/** @typedef {{ name: string, url: string }} House */

const SEARCH = "/v1/settings/home-assistant/search";

export class HousePanel {
  /** @type {House[]} */
  #found = [];
  /** @type {{ text: string, isBad: boolean } | null} */
  #result = null;
  #isBusy = false;

  /**
   * @param {object} parts
   * @param {() => void} parts.onChange called when there is something new to draw
   * @param {(url: string) => void} parts.choose
   */
  constructor({ onChange, choose }) {
    this.onChange = onChange;
    this.choose = choose;
  }

  /** Describes the search. Nothing is asked before the click. */
  search() {
    const offers = this.#found.map(({ name, url }) =>
      h(
        "li",
        { key: url },
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            "data-testid": "house-offer",
            click: () => this.choose(url),
          },
          `${name}: ${url}`,
        ),
      ),
    );
    return h(
      "div",
      { key: "house-search", class: "model-panel" },
      button("set_find_house", "house-search", this.#isBusy, () => this.#search()),
      result(this.#result),
      offers.length ? h("ul", { class: "model-offers" }, ...offers) : null,
    );
  }

  async #search() {
    this.#isBusy = true;
    this.onChange();
    try {
      const { servers } = await (await request(SEARCH, { method: "POST" })).json();
      this.#found = servers;
      this.#result = { text: t(servers.length ? "set_found" : "set_no_house"), isBad: false };
    } catch (/** @type {any} */ error) {
      const text = t("d_failed", { reason: error.message || error.code });
      this.#result = { text, isBad: true };
    }
    this.#isBusy = false;
    this.onChange();
  }
}
