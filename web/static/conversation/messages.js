// One message at a time to the user, in the user's language, with what can be done about it.

import { byId, h, icon } from "../view/keyed.js";
import { t } from "../words/translate.js";
import { setKey } from "../server/key.js";

const CALM = new Set(["lost", "gone", "autoplay", "mic_muted", "heard_nothing", "idle"]); // passing things, not errors

export class Messages {
  /** `actions`: { retry, hear, rekeyed }, called when the user asks for it. */
  constructor(actions) {
    this.actions = actions;
    this.box = byId("message");
    this.shown = null;
    this.countdown = null;
  }

  /** `code` is the part of a word's key after `m_`; `details` fills the sentence. */
  show(code, details = {}) {
    // The same question again: what was typed as its answer stays.
    if (code === "key" && this.shown?.code === code) return;
    this.#draw(code, details);
  }

  #draw(code, details) {
    clearInterval(this.countdown);
    this.shown = { code, details };
    this.box.dataset.code = code;
    this.box.dataset.calm = CALM.has(code);
    this.text = h("p", { class: "message-text" }, t(`m_${code}`, details));
    this.box.replaceChildren(this.text, ...this.#actionsFor(code), this.#dismiss());
    this.box.hidden = false;
    if (code === "full") this.#countDown(details.seconds);
  }

  /** The trouble is over; `codes`: if it was one of these. */
  clear(...codes) {
    if (codes.length && !codes.includes(this.shown?.code)) return;
    clearInterval(this.countdown);
    this.shown = null;
    this.box.hidden = true;
    this.box.replaceChildren();
  }

  translate() {
    if (!this.shown) return;
    const typed = this.box.querySelector("input")?.value;
    this.#draw(this.shown.code, this.shown.details);
    if (typed) this.box.querySelector("input").value = typed;
  }

  #actionsFor(code) {
    if (code === "key") return [this.#keyForm()];
    if (code === "autoplay") return [this.#button(t("m_hear"), () => this.#then("hear"))];
    const isRetried = [
      "full",
      "unreachable",
      "no_path",
      "denied",
      "busy",
      "no_microphone",
      "mic_muted",
    ].includes(code);
    return isRetried ? [this.#button(t("m_retry"), () => this.#then("retry"))] : [];
  }

  #keyForm() {
    const field = h("input", {
      type: "password",
      "aria-label": t("m_key_field"),
      placeholder: t("m_key_field"),
      autocomplete: "off",
      "data-testid": "key-input",
    });
    const submit = (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      setKey(field.value);
      this.#then("rekeyed");
    };
    return h(
      "form",
      { class: "key-form", submit },
      field,
      h("button", { class: "small" }, t("m_key_use")),
    );
  }

  #button(text, click) {
    return h(
      "button",
      { type: "button", class: "small", "data-testid": "message-action", click },
      text,
    );
  }

  #dismiss() {
    const click = () => this.clear();
    return h(
      "button",
      { type: "button", class: "icon-button", "aria-label": t("m_dismiss"), click },
      icon("close"),
    );
  }

  #then(action) {
    this.clear();
    this.actions[action]();
  }

  // The sentence changes once a second; only its beginning and its end are worth an announcement.
  #countDown(seconds) {
    let left = seconds;
    this.countdown = setInterval(() => {
      left -= 1;
      this.shown.details.seconds = left;
      this.text.textContent = left > 0 ? t("m_full", { seconds: left }) : t("m_full_now");
      if (left <= 0) clearInterval(this.countdown);
    }, 1_000);
  }
}
