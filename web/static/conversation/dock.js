// The dock: the state line, the microphone button and what stands around it.

import { WakeLock } from "../call/wake_lock.js";
import { whyUnheard } from "../header/header.js";
import { pullOf } from "../server/downloads.js";
import { progressOf } from "../settings/model_list.js";
import { byId, h, update } from "../view/keyed.js";
import { icon } from "../view/icon.js";
import { formatBytes, languageName, suggestions, t } from "../words/translate.js";
import { activity, hasActiveResponse } from "./reducer.js";
import { Meter, Ribbon } from "./ribbon.js";

/**
 * @typedef {import("../app.js").PageState} PageState
 * @typedef {"off" | "connecting" | "ready" | "asleep" | "listening" | "hearing" | "thinking" | "speaking" | "muted" | "reconnecting"} Doing
 *   What the page does now. ready: connected, but nobody is listened to; asleep: the session waits
 *   for its wake word; listening: the microphone is on; hearing: the user speaks;
 *   muted: by the user
 */

/** A Whisper that knows some hundred languages and is fast enough for two cores. */
const MULTILINGUAL = "base";

/** @type {Partial<Record<Doing, string>>} */
const MIC_ICONS = {
  speaking: "wave",
  thinking: "dots",
  connecting: "dots",
  reconnecting: "dots",
};

/** @param {PageState} state @returns {Doing} */
function doingNow({ connection, conversation, microphone, isMuted, isSilenced, isHeld, choices }) {
  if (connection !== "open") return connection === "idle" ? "off" : connection;
  const doing = activity(conversation);
  if (doing) return doing;
  if (microphone && isSilenced) return "muted";
  if (microphone && conversation.wake?.is_awake === false) return "asleep";
  if (!microphone || isMuted) return "ready";
  return isHeld || !choices.pushToTalk ? "listening" : "ready";
}

export class Dock {
  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("../call/speaker.js").Speaker} speaker
   * @param {object} parts
   * @param {(text: string) => void} parts.write sends a suggestion
   * @param {import("../server/downloads.js").Downloads} parts.downloads
   */
  constructor(store, speaker, { write, downloads }) {
    this.speaker = speaker;
    this.downloads = downloads;
    this.ribbon = new Ribbon(byId("ribbon"), byId("mic"));
    this.wakeLock = new WakeLock();
    /** @type {MediaStream | null} source of the ribbon's left side */
    this.metered = null;
    const call = /** @type {const} */ ([
      "connection",
      "microphone",
      "isMuted",
      "isSilenced",
      "isHeld",
    ]);
    const shown = /** @type {const} */ ([...call, "conversation", "choices", "language"]);
    store.watch([...shown, "downloads"], (state) => this.#show(state));
    store.watch(["choices", "language"], ({ choices }) => showSuggestions(choices.language, write));
  }

  /** Shows the level of the assistant's voice. @param {MediaStream} stream */
  meterAnswer(stream) {
    this.ribbon.connect("output", new Meter(this.speaker.context(), stream));
  }

  /** @param {PageState} state */
  #show(state) {
    const { choices, connection, conversation, microphone } = state;
    const doing = doingNow(state);
    const shown = doing === "hearing" ? "listening" : doing;
    update(document.documentElement, {
      "data-state": shown,
      "data-hearing": String(doing === "hearing"),
    });
    const unheard = whyUnheard(choices);
    update(byId("state"), {}, [t(`state_${doing}`, { phrase: conversation.wake?.phrase })]);
    const isNote = String(Boolean(unheard));
    update(byId("hint"), { "data-note": isNote }, [unheard || t(hintFor(doing, state))]);
    this.#showDownload(state, unheard !== "");
    const word = connection === "idle" ? "off" : connection;
    update(byId("connection-text"), {}, [t(`connection_${word}`)]);
    update(byId("hangup"), { hidden: connection === "idle" });
    update(byId("fresh"), { hidden: conversation.turns.length === 0 || connection !== "idle" });
    update(byId("stop-answer"), { hidden: !hasActiveResponse(conversation) });
    showMicrophone(shown, state);
    showMute(state);
    this.#meterMicrophone(microphone);
    this.wakeLock.want(Boolean(microphone) && connection !== "idle" && !choices.pushToTalk);
    if (doing === "off") this.ribbon.connect("output", null);
  }

  /**
   * Offers to fetch a recogniser that hears the chosen language, or says how far that is.
   *
   * @param {PageState} state
   * @param {boolean} isUnheard
   */
  #showDownload({ choices, downloads }, isUnheard) {
    const model = downloads?.available.find(({ name }) => name === MULTILINGUAL);
    const pull = pullOf(downloads, MULTILINGUAL);
    const isRunning = pull?.state === "running";
    const isOffered = model && isUnheard && (isRunning || !model.is_installed);
    update(byId("fetch"), { hidden: !isOffered }, [
      h(
        "span",
        { role: "status", "data-testid": "fetch-state" },
        isOffered && pull && progressOf(pull),
      ),
      isOffered &&
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            "data-testid": "fetch",
            click: () =>
              isRunning ? this.downloads.cancel(MULTILINGUAL) : this.downloads.pull(MULTILINGUAL),
          },
          isRunning
            ? t("fetch_cancel")
            : t("fetch", {
                model: model.name,
                size: formatBytes(model.size_bytes),
                language: languageName(choices.language),
              }),
        ),
    ]);
  }

  /** @param {MediaStream | null} stream */
  #meterMicrophone(stream) {
    if (stream === this.metered) return;
    this.metered = stream;
    this.ribbon.connect("input", stream ? new Meter(this.speaker.context(), stream) : null);
  }
}

/**
 * @param {Doing} doing
 * @param {PageState} state
 */
function showMicrophone(doing, { microphone, isHeld, choices }) {
  const { pushToTalk, isHeard } = choices;
  const isOn = microphone !== null && doing !== "off";
  const name = MIC_ICONS[doing] ?? (isOn && !pushToTalk ? "stop" : "mic");
  const label = t(pushToTalk ? "mic_hold" : isOn ? "mic_stop" : "mic_start");
  const props = {
    "data-icon": name,
    "aria-label": label,
    "aria-pressed": String(pushToTalk ? isHeld : isOn),
    "aria-disabled": String(!isHeard),
  };
  update(byId("mic"), props, [icon(name)]);
}

/** @param {PageState} state */
function showMute({ microphone, isSilenced, choices }) {
  const label = t(isSilenced ? "unmute" : "mute");
  const props = {
    hidden: !microphone || choices.pushToTalk,
    "aria-label": label,
    "aria-pressed": String(isSilenced),
    title: label,
  };
  update(byId("mute"), props, [icon(isSilenced ? "mic_off" : "mic")]);
}

/**
 * Returns the key of the sentence that tells the user what to do now.
 *
 * @param {Doing} doing
 * @param {PageState} state
 */
function hintFor(doing, { microphone, isHeld, choices }) {
  if (isHeld) return "hint_held";
  if (doing === "speaking") return "hint_speaking";
  if (doing === "asleep") return "hint_asleep";
  if (doing === "muted") return "hint_muted";
  if (choices.pushToTalk) return "hint_ptt";
  if (doing === "off") return "hint_off";
  return microphone ? "hint_on" : "hint_ready";
}

/**
 * @param {string} spoken the language of the sentences
 * @param {(text: string) => void} write
 */
function showSuggestions(spoken, write) {
  const buttons = suggestions(spoken).map((text) =>
    h(
      "li",
      { lang: spoken },
      h("button", { type: "button", class: "suggestion", click: () => write(text) }, text),
    ),
  );
  update(byId("suggestions"), {}, buttons);
}
