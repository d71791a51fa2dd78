// ESPHome satellites that the server has found in the local network, and their adoption.

import { getJson, pause } from "../server/api.js";
import { cancel, onSubmit, submit } from "../view/form.js";
import { byId, h, update } from "../view/keyed.js";
import { t } from "../words/translate.js";

/**
 * @typedef {{ hardware_id: string, name: string, address: string, needs_key: boolean }} Satellite
 *   as the server sends it
 */

const PATH = "/v1/esphome/satellites";
const ASK_MS = 5_000; // a satellite that is switched on announces itself within some seconds

export class FoundSatellites {
  /** @type {Satellite[]} */
  #found = [];
  /** MAC of the satellite whose form is open; empty: none. */
  #opened = "";
  /** @type {AbortController | null} ends the requests */
  #following = null;

  /**
   * @param {import("./devices_feed.js").DevicesFeed} feed
   * @param {import("../app.js").PageStore} store
   * @param {(text: string, isBad?: boolean) => void} showNote
   */
  constructor(feed, store, showNote) {
    this.feed = feed;
    this.showNote = showNote;
    store.watch(["language"], () => this.#draw());
  }

  /** Shows the list until `leave` is called. A server that does not search is asked once. */
  async follow() {
    this.leave();
    const { signal } = (this.#following = new AbortController());
    while (!signal.aborted && (await this.#load())) await pause(ASK_MS, signal);
  }

  /** Ends the requests, and drops what was typed. */
  leave() {
    this.#following?.abort();
    this.#open("");
  }

  /** Loads the list; returns whether the server goes on searching. */
  async #load() {
    try {
      const { is_searching: isSearching, satellites } = await getJson(PATH);
      this.#found = satellites;
      this.#draw();
      return isSearching;
    } catch (/** @type {any} */ error) {
      return ![401, 403, 404].includes(error.status);
    }
  }

  #draw() {
    update(byId("found-satellites"), { hidden: this.#found.length === 0 });
    update(
      byId("found-list"),
      {},
      this.#found.map((one) => this.#entry(one)),
    );
  }

  /** Opens the form of a satellite; empty closes it. @param {string} mac */
  #open(mac) {
    this.#opened = mac;
    this.#draw();
    if (!mac) return;
    const input = byId("found-list").querySelector("input");
    if (input instanceof HTMLElement) input.focus();
  }

  /** @param {Satellite} satellite */
  #entry(satellite) {
    const { hardware_id: mac, name, address, needs_key: needsKey } = satellite;
    const click = () => (needsKey ? this.#open(mac) : this.#adopt(satellite, ""));
    const isOpen = this.#opened === mac;
    const adopt = { type: "button", class: "strong", "data-testid": "adopt", click };
    return h(
      "li",
      { key: mac, class: "device", "data-testid": "found-satellite" },
      h(
        "div",
        { class: "device-head" },
        h("h3", {}, name),
        h("p", { class: "device-state" }, t(needsKey ? "is_encrypted" : "has_no_key")),
      ),
      h("p", { class: "device-facts" }, `${address} · ${mac}`),
      h("div", { class: "device-actions" }, !isOpen && h("button", adopt, t("adopt"))),
      h("div", { class: "device-panel" }, isOpen && this.#form(satellite)),
    );
  }

  /** Asks for the satellite's key. @param {Satellite} satellite */
  #form(satellite) {
    const label = t("satellite_key");
    const key = {
      type: "password",
      name: "key",
      required: true,
      maxlength: "64",
      autocomplete: "off",
      "aria-label": label,
      placeholder: label,
      "data-testid": "satellite-key",
    };
    return h(
      "form",
      onSubmit("adopt", "device-form", ({ key: typed }) => this.#adopt(satellite, typed.trim())),
      h("input", key),
      cancel("d_cancel", () => this.#open("")),
      submit("adopt", "adopt-send"),
      h("p", { class: "satellite-key-hint" }, t("satellite_key_hint")),
    );
  }

  /**
   * @param {Satellite} satellite
   * @param {string} key empty: it has none
   */
  async #adopt({ hardware_id: mac, name }, key) {
    try {
      await this.feed.send("POST", `${PATH}/${mac}/adopt`, { key });
      this.#open("");
      this.showNote(t("was_adopted", { name }));
    } catch (/** @type {any} */ error) {
      this.showNote(t("d_failed", { reason: error.message || error.code }), true);
    }
    await this.#load();
  }
}
