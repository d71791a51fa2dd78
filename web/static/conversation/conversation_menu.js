// The menu of the conversation: copy and download it, keep its sound or itself, delete it.

import { copy } from "../view/copying.js";
import { icon } from "../view/icon.js";
import { byId, update } from "../view/keyed.js";
import { Popover } from "../view/popover.js";
import { save } from "../view/saving.js";
import { t } from "../words/translate.js";
import { Recording } from "./recording.js";
import { isShown } from "./reducer.js";
import { asJson, asText } from "./transcript.js";

/**
 * @typedef {object} Actions
 * @property {(keepsConversation: boolean) => void} keep keeps it longer than the tab, or no more
 * @property {() => void} remove deletes the conversation here and on the server
 */

export class ConversationMenu {
  #keepsSound = false;

  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("../call/speaker.js").Speaker} speaker
   * @param {Actions} actions
   */
  constructor(store, speaker, actions) {
    this.store = store;
    const show = () => this.#show();
    this.recording = new Recording(() => speaker.context(), show);
    const button = byId("conversation-open");
    this.popover = new Popover(button, byId("conversation-menu"));
    update(button, {}, [icon("dots")]);
    this.#bindFiles();
    this.#bindChoices(actions);
    store.watch(["conversation", "choices", "language"], show);
    store.watch(["microphone", "connection"], ({ microphone, connection }) => {
      this.recording.listen("user", microphone);
      if (this.#keepsSound && connection === "open") this.recording.start();
    });
  }

  /** Records the assistant's voice from this stream, if the user wants that. @param {MediaStream} stream */
  hear(stream) {
    this.recording.listen("assistant", stream);
  }

  get #turns() {
    return this.store.state.conversation.turns;
  }

  #bindFiles() {
    const copyAll = async () => {
      await copy(asText(this.#turns));
      update(byId("conversation-said"), {}, [t("copied")]);
    };
    const saveSound = () => {
      const file = this.recording.file();
      save(file.type.includes("mp4") ? "m4a" : "webm", file.type, file);
    };
    update(byId("copy-all"), { click: copyAll });
    update(byId("save-text"), { click: () => save("txt", "text/plain", asText(this.#turns)) });
    update(byId("save-json"), {
      click: () => save("json", "application/json", asJson(this.#turns)),
    });
    update(byId("save-sound"), { click: saveSound });
  }

  /** @param {Actions} actions */
  #bindChoices({ keep, remove }) {
    update(byId("keep-sound"), {
      change: (/** @type {Event} */ event) => this.#keepSound(isOn(event)),
    });
    update(byId("keep-conversation"), {
      change: (/** @type {Event} */ event) => keep(isOn(event)),
    });
    const deleteAll = () => {
      this.recording.forget();
      this.popover.close();
      remove();
    };
    update(byId("delete-all"), { click: deleteAll });
  }

  /** @param {boolean} isWanted */
  #keepSound(isWanted) {
    this.#keepsSound = isWanted;
    if (!isWanted) this.recording.forget();
    else if (this.store.state.connection === "open") this.recording.start();
  }

  #show() {
    const { choices } = this.store.state;
    const isEmpty = !this.#turns.some(isShown);
    const label = t("conversation_menu");
    update(byId("conversation-open"), { "aria-label": label, title: label });
    for (const id of ["copy-all", "save-text", "save-json"])
      update(byId(id), { disabled: isEmpty });
    update(byId("keep-sound-choice"), { hidden: !Recording.isPossible });
    update(byId("save-sound"), { hidden: !this.recording.hasSound });
    update(byId("keep-conversation"), { checked: choices.keepsConversation });
    update(byId("delete-all"), { disabled: isEmpty && !this.recording.hasSound });
    update(byId("conversation-said"), {}, []);
  }
}

/** @param {Event} event of a switch */
const isOn = ({ target }) => /** @type {HTMLInputElement} */ (target).checked;
