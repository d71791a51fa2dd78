// The user's choices: languages, engines, way of talking, theme. Kept in this browser.

import { UI_LANGUAGES, browserLanguage } from "../words/translate.js";
import { readJson, writeJson } from "./storage.js";

/**
 * @typedef {{ name: string, installed: boolean, languages: string[], reason?: string,
 *   model?: { aliases: string[] } | null }} Engine
 * @typedef {{ chosen: string, why?: string, available: Engine[] }} EngineKind
 * @typedef {{ name: string, phrase: string, languages: string[] }} WakeWord
 * @typedef {{ languages?: string[], wake_words?: WakeWord[],
 *   session?: { language: string, asr: string } } & { [kind: string]: EngineKind }} Engines
 *   the server's report; `session`: what a session of this key begins with
 */

const STORED = "earshot.choices";
const DEFAULT = "default";

/** What the user chose, and what the server offers. Immutable: every change makes a new object. */
export class Choices {
  /** @type {Engines | null} the server's report, once it is known */
  engines = null;
  /** Code of the language that the user speaks, such as `de`. */
  language = browserLanguage();
  /** Code of the language of the page's words; empty follows the browser. */
  pageLanguage = "";
  /** Names of the engines that listen and answer; `default` leaves them to the server. */
  asr = DEFAULT;
  llm = DEFAULT;
  /** Name of a wake word, `default` or `off`. */
  wakeWord = DEFAULT;
  pushToTalk = false;
  /** Id of the microphone; empty: the system's choice. */
  microphone = "";
  /** Id of the speaker; empty: the system's choice. */
  speaker = "";
  /** Room in which this browser stands; empty: unknown. A program can ask the person there. */
  area = "";
  /** @type {"light" | "dark" | null} null follows the system */
  theme = null;
  /** Volume of the voice, 0 to 1. */
  volume = 1;
  /** Whether the conversation is kept in this browser, longer than this tab. */
  keepsConversation = false;
  /** Whether the server keeps the conversations, for every browser with the same key. */
  keepsOnServer = false;
  /** True if the user chose the language. Otherwise it may still be changed to one that works. */
  isLanguageChosen = false;

  /** @param {Partial<Choices>} values */
  constructor(values) {
    Object.assign(this, values);
  }

  /** Returns the choices of an earlier visit, or the first ones. */
  static stored() {
    return new Choices(readJson("browser", STORED) ?? {});
  }

  /** Returns the choices with these changes, and stores them. @param {Partial<Choices>} changes */
  with(changes) {
    const isLanguageChosen = this.isLanguageChosen || "language" in changes;
    const changed = new Choices({ ...this, ...changes, isLanguageChosen });
    const { language, pageLanguage, asr, llm, wakeWord, pushToTalk, theme } = changed;
    const { microphone, speaker, area, volume, keepsConversation, keepsOnServer } = changed;
    const kept = {
      pageLanguage,
      asr,
      llm,
      wakeWord,
      pushToTalk,
      theme,
      microphone,
      speaker,
      area,
      volume,
      keepsConversation,
      keepsOnServer,
    };
    writeJson("browser", STORED, isLanguageChosen ? { language, isLanguageChosen, ...kept } : kept);
    return changed;
  }

  /**
   * Returns the choices with this report of the server. Choices that it does not offer get their
   * default.
   *
   * @param {Engines} engines
   */
  offered(engines) {
    const next = new Choices({ ...this, engines });
    const isUsable = (/** @type {string} */ kind, /** @type {string} */ chosen) =>
      next.usable(kind).some(({ name }) => name === chosen);
    if (!isUsable("asr", next.asr)) next.asr = DEFAULT;
    if (!isUsable("llm", next.llm)) next.llm = DEFAULT;
    const hasWakeWord = next.wakeWords().some(({ name }) => name === next.wakeWord);
    if (next.wakeWord !== "off" && !hasWakeWord) next.wakeWord = DEFAULT;
    const ofKey = engines.session?.language ?? "";
    const isOfKey = !next.isLanguageChosen && next.languages().includes(ofKey);
    if (isOfKey) next.language = ofKey;
    if (!next.languages().includes(next.language)) next.language = next.languages()[0];
    // If nobody chose a language, take one in which the microphone works at once.
    if (!next.isLanguageChosen && !isOfKey && !next.isHeard) {
      const heard = next.recognizer()?.languages ?? [];
      next.language = next.languages().find((one) => heard.includes(one)) ?? next.language;
    }
    return next;
  }

  /**
   * Returns the engines that a session can ask for. Only loaded ones report their languages.
   *
   * @param {string} kind
   */
  usable(kind) {
    const available = this.engines?.[kind]?.available ?? [];
    return available.filter((one) => one.installed && one.languages.length);
  }

  /** Returns the wake words that a session can wait for. */
  wakeWords() {
    return this.engines?.wake_words ?? [];
  }

  /**
   * Returns the languages of the server's conversations, first those that the page is translated
   * into.
   */
  languages() {
    const offered = this.engines?.languages ?? [];
    if (!offered.length) return UI_LANGUAGES;
    const others = offered.filter((one) => !UI_LANGUAGES.includes(one));
    return [...UI_LANGUAGES.filter((one) => offered.includes(one)), ...others];
  }

  /** The language in which the page is shown. */
  get shownLanguage() {
    return UI_LANGUAGES.includes(this.pageLanguage) ? this.pageLanguage : browserLanguage();
  }

  /** Name of the recogniser that a session asks for: the user's choice, otherwise that of the key. */
  get #sessionAsr() {
    return this.asr === DEFAULT ? (this.engines?.session?.asr ?? DEFAULT) : this.asr;
  }

  /** Returns the recogniser in use; null before the report. */
  recognizer() {
    const asr = this.#sessionAsr;
    const name = asr === DEFAULT ? this.engines?.asr?.chosen : asr;
    return this.engines?.asr?.available.find((engine) => engine.name === name) ?? null;
  }

  /** True if the recogniser understands the chosen language, or if the report is still missing. */
  get isHeard() {
    const languages = this.recognizer()?.languages ?? [];
    return !languages.length || languages.includes("*") || languages.includes(this.language);
  }

  /**
   * Returns the session object for a new call.
   *
   * @param {string | null} conversationId of the conversation to continue; null begins a new one
   */
  session(conversationId) {
    const wakeWord = this.wakeWord === "off" ? "" : this.wakeWord;
    return {
      ...this.changeable(),
      model: this.llm,
      output_modalities: ["audio"],
      include: [
        "earshot.hypothesis",
        "earshot.turn",
        "earshot.connection",
        "earshot.wake",
        "earshot.tool",
      ],
      earshot: {
        conversation_id: conversationId ?? newConversationId(),
        ...(this.wakeWord === DEFAULT ? {} : { wake_word: wakeWord }),
        ...(this.area && { area: this.area }),
      },
    };
  }

  /** Returns the part of the session object that a running session can change. */
  changeable() {
    return {
      type: "realtime",
      audio: {
        input: {
          transcription: { model: this.#sessionAsr, language: this.language },
          turn_detection: this.pushToTalk ? null : { type: "semantic_vad" },
        },
      },
    };
  }
}

/**
 * Returns an id for a new conversation. The page names its conversation, because the server forgets one
 * without a name when the connection ends.
 */
function newConversationId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID needs https
  return `page_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
