// The selects in the header and the list of engines, drawn from what the server offers.

import { byId, h, update } from "../view/keyed.js";
import { icon } from "../view/icon.js";
import { UI_LANGUAGES, browserLanguage, languageName, nativeName, t } from "../words/translate.js";

/** @typedef {import("../state/choices.js").Choices} Choices */

const KINDS = ["asr", "llm", "tts", "vad"]; // kinds of engines, in the order of the list

// The element of each select, and the choice that it sets.

/** @type {[id: string, name: "language" | "asr" | "llm" | "wakeWord" | "pageLanguage"][]} */
const SELECTS = [
  ["language", "language"],
  ["engine", "asr"],
  ["model", "llm"],
  ["wake", "wakeWord"],
  ["page-language", "pageLanguage"],
];

export class Header {
  /**
   * @param {import("../app.js").PageStore} store
   * @param {(changes: Partial<Choices>) => void} choose called with what the user chose
   */
  constructor(store, choose) {
    this.systemIsDark = matchMedia("(prefers-color-scheme: dark)");
    const show = () => this.#showTheme(store.state.choices, choose);
    this.systemIsDark.addEventListener("change", show);
    store.watch(["choices", "language"], ({ choices }) => {
      this.#showChoices(choices, choose);
      this.#showTheme(choices, choose);
      showEngines(choices);
    });
  }

  /**
   * Draws the selects and the switch for push-to-talk.
   *
   * @param {Choices} choices
   * @param {(changes: Partial<Choices>) => void} choose
   */
  #showChoices(choices, choose) {
    /** @type {Record<string, [value: string, text: string][]>} */
    const offered = {
      language: choices.languages().map((one) => [one, nativeName(one)]),
      asr: engineOptions(choices, "asr"),
      llm: engineOptions(choices, "llm"),
      wakeWord: wakeOptions(choices),
      pageLanguage: pageLanguageOptions(),
    };
    for (const [id, name] of SELECTS) {
      const options = offered[name].map(([value, text]) =>
        h("option", { key: value, value, selected: value === choices[name] }, text),
      );
      /** @param {Event} event */
      const change = ({ target }) =>
        choose({ [name]: /** @type {HTMLSelectElement} */ (target).value });
      update(byId(id), { change }, options);
    }
    update(byId("model-choice"), { hidden: choices.usable("llm").length < 2 });
    update(byId("wake-choice"), { hidden: choices.wakeWords().length === 0 });
    /** @param {Event} event */
    const change = ({ target }) =>
      choose({ pushToTalk: /** @type {HTMLInputElement} */ (target).checked });
    update(byId("ptt"), { checked: choices.pushToTalk, change });
  }

  /**
   * Applies the theme, and draws the button that changes it.
   *
   * @param {Choices} choices
   * @param {(changes: Partial<Choices>) => void} choose
   */
  #showTheme({ theme }, choose) {
    const isDark = theme ? theme === "dark" : this.systemIsDark.matches;
    update(document.documentElement, { "data-theme": isDark ? "dark" : "light" });
    const label = t(isDark ? "theme_light" : "theme_dark");
    const click = () => choose({ theme: isDark ? "light" : "dark" });
    update(byId("theme"), { "aria-label": label, click }, [icon(isDark ? "sun" : "moon")]);
  }
}

/**
 * Explains why the microphone is not offered in this language; empty if it is.
 *
 * @param {Choices} choices
 */
export function whyUnheard(choices) {
  const recognizer = choices.recognizer();
  if (choices.isHeard || !recognizer) return "";
  const languages = recognizer.languages.map(languageName).join(", ");
  return t("hears_only", {
    engine: title(recognizer.name),
    languages,
  });
}

/**
 * Returns the options for a kind of engine; the first one leaves the choice to the server.
 *
 * @param {Choices} choices
 * @param {string} kind
 * @returns {[value: string, text: string][]}
 */
function engineOptions(choices, kind) {
  const chosen = choices.engines?.[kind]?.chosen;
  const automatic = chosen ? t("default_engine", { name: title(chosen) }) : t("automatic");
  const usable = choices.usable(kind);
  return [["default", automatic], ...usable.map(({ name }) => pair(name, title(name)))];
}

/**
 * Returns the options for the wake word; the first one leaves the choice to the server.
 *
 * @param {Choices} choices
 * @returns {[value: string, text: string][]}
 */
const wakeOptions = (choices) => [
  ["default", t("automatic")],
  ["off", t("wake_off")],
  ...choices.wakeWords().map(({ name, phrase }) => pair(name, phrase)),
];

/** @returns {[value: string, text: string][]} */
const pageLanguageOptions = () => [
  ["", t("page_language_browser", { name: nativeName(browserLanguage()) })],
  ...UI_LANGUAGES.map((one) => pair(one, nativeName(one))),
];

/**
 * @param {string} value
 * @param {string} text
 * @returns {[value: string, text: string]}
 */
const pair = (value, text) => [value, text];

/** Lists the chosen engine of each kind, why it was chosen, and the others. @param {Choices} choices */
function showEngines({ engines }) {
  if (!engines) return;
  const rows = KINDS.filter((kind) => engines[kind]).flatMap((kind) => {
    const { chosen, why, available } = engines[kind];
    const others = available.filter(({ name }) => name !== chosen).map(otherEngine);
    return [
      h("dt", { key: kind }, t(`engine_${kind}`)),
      h(
        "dd",
        { key: kind },
        h("strong", {}, title(chosen)),
        why ? h("span", { class: "why" }, why) : null,
        others.length ? h("ul", { class: "others" }, ...others) : null,
      ),
    ];
  });
  update(byId("engines"), {}, rows);
}

/** @param {import("../state/choices.js").Engine} engine */
function otherEngine({ name, installed, reason }) {
  const text = installed ? title(name) : `${title(name)} (${t("not_installed")})`;
  return h("li", { key: name, title: reason || null, "data-installed": String(installed) }, text);
}

/** @type {Record<string, string>} */
const TITLES = {
  asr: "ASR",
  tts: "TTS",
  vad: "VAD",
  pocketsphinx: "PocketSphinx",
  faster_whisper: "Whisper",
  espeak: "eSpeak",
  openai: "OpenAI",
};

/** Returns an engine's configured name in its usual spelling. @param {string} name */
function title(name) {
  return TITLES[name] ?? name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());
}
