// Gestures on the microphone button, the space bar and the text box become actions.

import { byId, update } from "../view/keyed.js";
import { icon } from "../view/icon.js";

const FIELDS = "input:not([type=checkbox], [type=range]), textarea, select, [contenteditable]";
// Elements that use the space bar themselves: they have the focus while somebody types or clicks.
const TYPING = "input, textarea, select, button, summary, a, [contenteditable]";

export class Controls {
  /** True if the next click on the microphone button comes from a key. */
  #isKey = false;

  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("./assistant.js").Assistant} assistant
   */
  constructor(store, assistant) {
    this.store = store;
    this.assistant = assistant;
    this.mic = byId("mic");
    this.#bindMicrophone();
    this.#bindSpaceBar();
    this.#bindText();
    this.#bindShortcuts();
    update(byId("stop-answer"), { click: () => assistant.stopAnswer() });
    update(byId("mute"), { click: () => assistant.toggleMute() });
    update(byId("hangup"), { click: () => assistant.stop() });
    update(byId("fresh"), { click: () => assistant.startOver() });
    update(byId("send"), {}, [icon("send")]);
  }

  get #isPushToTalk() {
    return this.store.state.choices.pushToTalk;
  }

  #bindMicrophone() {
    const { mic } = this;
    mic.addEventListener("pointerdown", (event) => {
      if (!this.#holds() || event.button !== 0) return;
      mic.setPointerCapture(event.pointerId);
      this.assistant.press();
    });
    for (const end of ["pointerup", "pointercancel"]) {
      mic.addEventListener(end, () => this.#isPushToTalk && this.assistant.release());
    }
    mic.addEventListener("contextmenu", (event) => this.#isPushToTalk && event.preventDefault());
    mic.addEventListener("click", (event) => {
      if (mic.getAttribute("aria-disabled") === "true") return;
      if (!this.#isPushToTalk) this.assistant.toggle();
      // Screen readers click without pointer or key. Then one click starts, and the next one sends.
      else if (event.detail === 0 && !this.#isKey) {
        this.store.state.isHeld ? this.assistant.release() : this.assistant.press();
      }
      this.#isKey = false;
    });
  }

  /**
   * Makes the space bar talk, on the microphone button and wherever no element has another use for
   * the key.
   */
  #bindSpaceBar() {
    /** @type {string | null} */
    let heldKey = null;
    const isOurs = (/** @type {KeyboardEvent} */ event) =>
      this.#isPushToTalk &&
      (event.code === "Space" || (event.code === "Enter" && event.target === this.mic)) &&
      !event.ctrlKey &&
      !event.altKey &&
      !event.metaKey && // not the shortcuts of system and browser
      (event.target === this.mic ||
        !(event.target instanceof Element && event.target.closest(TYPING)));
    const release = () => {
      heldKey = null;
      this.assistant.release();
    };
    addEventListener("keydown", (event) => {
      if (!isOurs(event)) return;
      event.preventDefault();
      this.#isKey = event.target === this.mic;
      if (event.repeat || !this.#holds()) return;
      heldKey = event.code;
      this.assistant.press();
    });
    // The focus, or push-to-talk, may have changed since the key went down.
    addEventListener("keyup", (event) => {
      if (event.code !== heldKey) return;
      event.preventDefault();
      release();
    });
    addEventListener("blur", () => (heldKey !== null || this.#isPushToTalk) && release());
  }

  #bindText() {
    const field = /** @type {HTMLInputElement} */ (byId("text"));
    byId("write").addEventListener("submit", async (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if (!text) return;
      field.value = "";
      // Text that could not be sent goes back into the field.
      if (!(await this.assistant.write(text)) && !field.value) field.value = text;
    });
  }

  /** Escape stops the answer, and M mutes, unless the key belongs to a field or a dialog. */
  #bindShortcuts() {
    addEventListener("keydown", (event) => {
      if (event.repeat || event.isComposing || event.ctrlKey || event.altKey || event.metaKey)
        return;
      if (document.querySelector("dialog[open], :popover-open")) return;
      if (event.key === "Escape") this.assistant.stopAnswer();
      const isTyped = event.target instanceof Element && event.target.closest(FIELDS);
      if (event.key.toLowerCase() === "m" && !isTyped) this.assistant.toggleMute();
    });
  }

  /** Returns whether a press on the microphone starts to talk. */
  #holds() {
    return this.#isPushToTalk && this.mic.getAttribute("aria-disabled") !== "true";
  }
}
