// The microphone button, the space bar and the text box: gestures become actions.

import { byId, icon } from "./dom.js";

const TYPING = "input, textarea, select, button, summary, a, [contenteditable]";

export class Controls {
  constructor(assistant, choices) {
    this.assistant = assistant;
    this.choices = choices;
    this.mic = byId("mic");
    this.#bindMicrophone();
    this.#bindSpaceBar();
    this.#bindText();
    byId("hangup").addEventListener("click", () => assistant.stop());
    byId("fresh").addEventListener("click", () => assistant.fresh());
    byId("send").append(icon("send"));
  }

  #bindMicrophone() {
    const { mic } = this;
    mic.addEventListener("pointerdown", (event) => {
      if (!this.#holds() || event.button !== 0) return;
      mic.setPointerCapture(event.pointerId);
      this.assistant.press();
    });
    for (const end of ["pointerup", "pointercancel"]) {
      mic.addEventListener(end, () => this.choices.pushToTalk && this.assistant.release());
    }
    mic.addEventListener("contextmenu", (event) => this.choices.pushToTalk && event.preventDefault());
    mic.addEventListener("click", (event) => {
      if (mic.getAttribute("aria-disabled") === "true") return;
      if (!this.choices.pushToTalk) this.assistant.toggle();
      // Screen readers click without pointer or key: then one click starts and the next sends.
      else if (event.detail === 0 && !this.isKey) this.assistant.held ? this.assistant.release() : this.assistant.press();
      this.isKey = false;
    });
  }

  /** Held on the microphone button, or anywhere that is not made for typing. */
  #bindSpaceBar() {
    const isOurs = (event) =>
      this.choices.pushToTalk && (event.code === "Space" || (event.code === "Enter" && event.target === this.mic)) &&
      (event.target === this.mic || !event.target.closest?.(TYPING));
    addEventListener("keydown", (event) => {
      if (!isOurs(event)) return;
      event.preventDefault();
      this.isKey = event.target === this.mic;
      if (!event.repeat && this.#holds()) this.assistant.press();
    });
    addEventListener("keyup", (event) => {
      if (!isOurs(event)) return;
      event.preventDefault();
      this.assistant.release();
    });
    addEventListener("blur", () => this.choices.pushToTalk && this.assistant.release());
  }

  #bindText() {
    const field = byId("text");
    byId("write").addEventListener("submit", async (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if (!text) return;
      field.value = "";
      // What could not be sent is given back to be sent again.
      if (!(await this.assistant.write(text)) && !field.value) field.value = text;
    });
  }

  #holds() {
    return this.choices.pushToTalk && this.mic.getAttribute("aria-disabled") !== "true";
  }
}
