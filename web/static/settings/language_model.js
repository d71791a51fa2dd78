// Finds language models on the server's machine, and lets one answer.

import { request } from "../server/api.js";
import { h } from "../view/keyed.js";
import { formatMs, t } from "../words/translate.js";

/**
 * @typedef {{ name: string, base_url: string, models: string[] }} Found
 * @typedef {{ base_url: string, model: string, api_key?: string }} Model
 * @typedef {{ text: string, isBad: boolean }} Result
 */

const API = "/v1/settings/language-models";
const TEST_MS = 70_000; // the server gives a cold model a minute
const WITH_COMMANDS = "hybrid"; // commands of the home are carried out without the model

export class ModelPanel {
  /** @type {Found[] | null} null: not asked yet */
  #found = null;
  /** @type {Result | null} */
  #searchResult = null;
  /** @type {Result | null} */
  #testResult = null;
  #isBusy = false;

  /**
   * @param {object} parts
   * @param {() => string} parts.language
   * @param {() => void} parts.onChange called when there is something new to draw
   * @param {(engine: string, values: { base_url: string, model: string }) => void} parts.choose
   * @param {(text: string) => void} parts.speak
   */
  constructor({ language, onChange, choose, speak }) {
    this.language = language;
    this.onChange = onChange;
    this.choose = choose;
    this.speak = speak;
  }

  /** Describes the search. Nothing is asked before the click. */
  search() {
    const offers = (this.#found ?? []).flatMap(({ name, base_url: url, models }) =>
      (models.length ? models : ["auto"]).map((model) =>
        h(
          "li",
          { key: `${url} ${model}` },
          h(
            "button",
            {
              type: "button",
              class: "quiet",
              "data-testid": "model-offer",
              click: () => this.choose(WITH_COMMANDS, { base_url: url, model }),
            },
            `${name}: ${model}`,
          ),
        ),
      ),
    );
    return h(
      "div",
      { key: "model-search", class: "model-panel" },
      button("set_find", "model-search", this.#isBusy, () => this.#search()),
      result(this.#searchResult),
      offers.length ? h("ul", { class: "model-offers" }, ...offers) : null,
    );
  }

  /** Describes the test. @param {Model} model as the form has it now */
  test(model) {
    const isOff = this.#isBusy || !model.base_url;
    return h(
      "div",
      { key: "model-test", class: "model-panel" },
      button("set_test", "model-test", isOff, () => this.#test(model)),
      result(this.#testResult),
    );
  }

  async #search() {
    await this.#ask(
      "/search",
      {},
      {
        done: ({ servers, tried }) => {
          this.#found = servers;
          const none = { text: t("set_found_none", { tried: tried.join(", ") }), isBad: false };
          this.#searchResult = servers.length ? { text: t("set_found"), isBad: false } : none;
        },
        failed: (text) => (this.#searchResult = { text, isBad: true }),
      },
    );
  }

  /** @param {Model} model */
  async #test(model) {
    this.#testResult = { text: t("set_testing"), isBad: false };
    await this.#ask(
      "/test",
      { ...model, language: this.language() },
      {
        done: ({ text, took_ms: ms }) => {
          this.#testResult = { text: t("set_answered", { text, ms: formatMs(ms) }), isBad: false };
          this.speak(text);
        },
        failed: (text) => (this.#testResult = { text, isBad: true }),
      },
    );
  }

  /**
   * @param {string} path
   * @param {object} body
   * @param {{ done: (answer: any) => void, failed: (text: string) => void }} handlers
   */
  async #ask(path, body, { done, failed }) {
    this.#isBusy = true;
    this.onChange();
    try {
      const headers = { "Content-Type": "application/json" };
      const options = { method: "POST", body: JSON.stringify(body), headers, limitMs: TEST_MS };
      done(await (await request(`${API}${path}`, options)).json());
    } catch (/** @type {any} */ error) {
      failed(t("d_failed", { reason: error.message || error.code }));
    }
    this.#isBusy = false;
    this.onChange();
  }
}

/**
 * @param {string} key of its text
 * @param {string} testid
 * @param {boolean} isOff
 * @param {() => void} click
 */
export const button = (key, testid, isOff, click) =>
  h(
    "button",
    {
      type: "button",
      class: "quiet",
      "data-testid": testid,
      "aria-disabled": String(isOff),
      click: () => isOff || click(),
    },
    t(key),
  );

/** @param {Result | null} shown */
export const result = (shown) =>
  h(
    "p",
    {
      key: "result",
      class: "model-result",
      role: "status",
      "data-bad": String(shown?.isBad ?? false),
    },
    shown?.text,
  );
