// The microphone button, the space bar and the text box: gestures become actions.

import { byId, icon } from "../view/keyed.js";

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
    mic.addEventListener(
      "contextmenu",
      (event) => this.choices.pushToTalk && event.preventDefault(),
    );
    mic.addEventListener("click", (event) => {
      if (mic.getAttribute("aria-disabled") === "true") return;
      if (!this.choices.pushToTalk) this.assistant.toggle();
      // Screen readers click without pointer or key: then one click starts and the next sends.
      else if (event.detail === 0 && !this.isKey) {
        this.assistant.held ? this.assistant.release() : this.assistant.press();
      }
      this.isKey = false;
    });
  }

  /** Held on the microphone button, or anywhere that is not made for typing. */
  #bindSpaceBar() {
    let heldKey = null;
    const isOurs = (event) =>
      this.choices.pushToTalk &&
      (event.code === "Space" || (event.code === "Enter" && event.target === this.mic)) &&
      !event.ctrlKey &&
      !event.altKey &&
      !event.metaKey && // the system's and the browser's shortcuts
      (event.target === this.mic || !event.target.closest?.(TYPING));
    const release = () => {
      heldKey = null;
      this.assistant.release();
    };
    addEventListener("keydown", (event) => {
      if (!isOurs(event)) return;
      event.preventDefault();
      this.isKey = event.target === this.mic;
      if (event.repeat || !this.#holds()) return;
      heldKey = event.code;
      this.assistant.press();
    });
    // The focus, or the way of talking, may have changed since the key went down.
    addEventListener("keyup", (event) => {
      if (event.code !== heldKey) return;
      event.preventDefault();
      release();
    });
    addEventListener("blur", () => (heldKey !== null || this.choices.pushToTalk) && release());
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
