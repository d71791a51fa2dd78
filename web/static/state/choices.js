// What the user chose: language, engines, how to talk, light or dark. Kept in this browser.

import { UI_LANGUAGES } from "../words/translate.js";
import { readJson, writeJson } from "./storage.js";

const STORED = "earshot.choices";
const DEFAULT = "default";

export class Choices {
  constructor() {
    this.engines = null; // the server's report, once it is known
    this.language = UI_LANGUAGES.find((one) => navigator.language.startsWith(one)) ?? "en";
    this.asr = DEFAULT;
    this.llm = DEFAULT;
    this.wakeWord = DEFAULT; // or "off", or a name
    this.pushToTalk = false;
    this.theme = null; // null follows the system
    this.isLanguageChosen = false;
    Object.assign(this, readJson("browser", STORED));
  }

  set(changes) {
    Object.assign(this, changes);
    this.isLanguageChosen ||= "language" in changes;
    const { asr, llm, wakeWord, pushToTalk, theme, isLanguageChosen } = this;
    const language = isLanguageChosen ? { language: this.language, isLanguageChosen } : {};
    writeJson("browser", STORED, { ...language, asr, llm, wakeWord, pushToTalk, theme });
  }

  /** Take the server's report; choices that it does not offer fall back. */
  know(engines) {
    this.engines = engines;
    if (!this.usable("asr").some(({ name }) => name === this.asr)) this.asr = DEFAULT;
    if (!this.usable("llm").some(({ name }) => name === this.llm)) this.llm = DEFAULT;
    if (this.wakeWord !== "off" && !this.wakeWords().some(({ name }) => name === this.wakeWord)) {
      this.wakeWord = DEFAULT;
    }
    if (!this.languages().includes(this.language)) this.language = this.languages()[0];
    // Nobody chose a language yet: then talking should work at the first click.
    if (!this.isLanguageChosen && !this.isHeard) {
      this.language =
        this.languages().find((one) => this.recognizer().languages.includes(one)) ?? this.language;
    }
  }

  /** What a session can ask for: engines that are loaded, which is when they tell their languages. */
  usable(kind) {
    return (this.engines?.[kind]?.available ?? []).filter(
      (one) => one.installed && one.languages.length,
    );
  }

  /** Words that a session can wait for: { name, phrase, languages }. */
  wakeWords() {
    return this.engines?.wake_words ?? [];
  }

  /** Languages to choose from: what the server converses in; first those that the page speaks. */
  languages() {
    const offered = this.engines?.languages ?? [];
    if (!offered.length) return UI_LANGUAGES;
    const others = offered.filter((one) => !UI_LANGUAGES.includes(one));
    return [...UI_LANGUAGES.filter((one) => offered.includes(one)), ...others];
  }

  /** The speech recognition in use, or null before the report. */
  recognizer() {
    const name = this.asr === DEFAULT ? this.engines?.asr?.chosen : this.asr;
    return this.engines?.asr?.available.find((engine) => engine.name === name) ?? null;
  }

  /** Whether the microphone makes sense in this language; until we know, it does. */
  get isHeard() {
    const languages = this.recognizer()?.languages ?? [];
    return !languages.length || languages.includes("*") || languages.includes(this.language);
  }

  /** The session object of a new call. */
  session(conversationId) {
    return {
      ...this.changeable(),
      model: this.llm,
      output_modalities: ["audio"],
      include: ["earshot.hypothesis", "earshot.turn", "earshot.connection", "earshot.wake"],
      earshot: {
        conversation_id: conversationId ?? newConversationId(),
        ...(this.wakeWord === DEFAULT
          ? {}
          : { wake_word: this.wakeWord === "off" ? "" : this.wakeWord }),
      },
    };
  }

  /** The part of it that a running session can change. */
  changeable() {
    return {
      type: "realtime",
      audio: {
        input: {
          transcription: { model: this.asr, language: this.language },
          turn_detection: this.pushToTalk ? null : { type: "semantic_vad" },
        },
      },
    };
  }
}

/** The page names its conversation: the server forgets an unnamed one when its connection ends. */
function newConversationId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID needs https
  return `page_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
