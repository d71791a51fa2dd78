// One message to the user at a time, in the user's language, with a button for what can be done.

import { setKey } from "../server/key.js";
import { byId, h, update } from "../view/keyed.js";
import { icon } from "../view/icon.js";
import { t } from "../words/translate.js";

/**
 * @typedef {{ retry: () => void, hear: () => void, useKey: () => void }} Actions
 *   hear: play the assistant's sound, which the browser blocked; useKey: connect with the key that was
 *   typed in
 */

// Messages about states that pass without the user's help. They are not drawn as errors.
const CALM = new Set(["lost", "gone", "autoplay", "mic_muted", "heard_nothing", "idle"]);
// Messages with a button that tries again.
const RETRIED = new Set([
  "full",
  "unreachable",
  "no_path",
  "denied",
  "busy",
  "no_microphone",
  "mic_muted",
]);

export class Messages {
  /** @param {Actions} actions called when the user asks for them */
  constructor(actions) {
    this.actions = actions;
    /** @type {{ code: string, details: Record<string, any> } | null} */
    this.shown = null;
    /** @type {number | undefined} */
    this.countdown = undefined;
  }

  /**
   * @param {string} code key of the sentence, without its `m_`
   * @param {Record<string, any>} details values for the placeholders of the sentence
   */
  show(code, details = {}) {
    clearInterval(this.countdown);
    this.shown = { code, details };
    this.draw();
    if (code === "full") this.#countDown(details.seconds);
  }

  /** Removes the message. @param {...string} codes only if it is one of these */
  clear(...codes) {
    if (codes.length && !codes.includes(this.shown?.code ?? "")) return;
    clearInterval(this.countdown);
    this.shown = null;
    this.draw();
  }

  /** Draws the message again, in the present language. */
  draw() {
    const box = byId("message");
    if (!this.shown) {
      update(box, { hidden: true }, []);
      return;
    }
    const { code, details } = this.shown;
    const isOver = code === "full" && details.seconds <= 0;
    const text = isOver ? t("m_full_now") : t(`m_${code}`, details);
    const dismiss = {
      type: "button",
      class: "icon-button",
      "aria-label": t("m_dismiss"),
      click: () => this.clear(),
    };
    update(box, { hidden: false, "data-code": code, "data-calm": String(CALM.has(code)) }, [
      h("p", { key: code, class: "message-text" }, text),
      this.#action(code),
      h("button", dismiss, icon("close")),
    ]);
  }

  /** Returns the button or form for what the user can do. @param {string} code */
  #action(code) {
    if (code === "key") return this.#keyForm();
    if (code === "autoplay") return this.#button("m_hear", "hear");
    return RETRIED.has(code) ? this.#button("m_retry", "retry") : null;
  }

  #keyForm() {
    /** @param {Event} event */
    const submit = (event) => {
      event.preventDefault();
      const form = /** @type {HTMLFormElement} */ (event.target);
      const key = String(new FormData(form).get("key")).trim();
      if (!key) return;
      setKey(key);
      this.#do("useKey");
    };
    const field = h("input", {
      type: "password",
      name: "key",
      "aria-label": t("m_key_field"),
      placeholder: t("m_key_field"),
      autocomplete: "off",
      "data-testid": "key-input",
    });
    const use = h("button", { class: "small" }, t("m_key_use"));
    return h("form", { class: "key-form", submit }, field, use);
  }

  /**
   * @param {string} key of its text
   * @param {keyof Actions} action
   */
  #button(key, action) {
    const click = () => this.#do(action);
    const props = { type: "button", class: "small", "data-testid": "message-action", click };
    return h("button", props, t(key));
  }

  /** @param {keyof Actions} action */
  #do(action) {
    this.clear();
    this.actions[action]();
  }

  /** Counts down in the sentence. @param {number} seconds until the server may have room */
  #countDown(seconds) {
    let left = seconds;
    this.countdown = setInterval(() => {
      left -= 1;
      if (this.shown) this.shown.details.seconds = left;
      this.draw();
      if (left <= 0) clearInterval(this.countdown);
    }, 1_000);
  }
}
