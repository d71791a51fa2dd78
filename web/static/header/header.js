// The choices in the header, and the list of engines: drawn from what the server offers.

import { byId, h, icon } from "../view/keyed.js";
import { languageName, nativeName, t } from "../words/translate.js";

const KINDS = ["asr", "llm", "tts", "vad"];

export class Header {
  /** `onChange(name)` after language, asr, llm, wakeWord, pushToTalk or theme changed. */
  constructor(choices, onChange) {
    this.choices = choices;
    const bind = (id, name) =>
      byId(id).addEventListener("change", ({ target }) =>
        this.#choose(onChange, name, target.value),
      );
    bind("language", "language");
    bind("engine", "asr");
    bind("model", "llm");
    bind("wake", "wakeWord");
    byId("ptt").addEventListener("change", ({ target }) =>
      this.#choose(onChange, "pushToTalk", target.checked),
    );
    byId("theme").addEventListener("click", () => {
      this.#choose(onChange, "theme", this.#isDark() ? "light" : "dark");
      this.showTheme();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.showTheme());
  }

  show() {
    const { choices } = this;
    fill(
      byId("language"),
      choices.languages().map((one) => [one, nativeName(one)]),
      choices.language,
    );
    fill(byId("engine"), this.#engineOptions("asr"), choices.asr);
    fill(byId("model"), this.#engineOptions("llm"), choices.llm);
    byId("model-choice").hidden = choices.usable("llm").length < 2;
    fill(byId("wake"), this.#wakeOptions(), choices.wakeWord);
    byId("wake-choice").hidden = choices.wakeWords().length === 0;
    byId("ptt").checked = choices.pushToTalk;
    this.showTheme();
    this.#showEngines();
  }

  showTheme() {
    const isDark = this.#isDark();
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    byId("theme").replaceChildren(icon(isDark ? "sun" : "moon"));
    byId("theme").setAttribute("aria-label", t(isDark ? "theme_light" : "theme_dark"));
  }

  /** Why the microphone is not offered in this language; empty when it is. */
  get unheard() {
    if (this.choices.isHeard) return "";
    const { name, languages } = this.choices.recognizer();
    return t("hears_only", {
      engine: title(name),
      languages: languages.map(languageName).join(", "),
    });
  }

  #choose(onChange, name, value) {
    this.choices.set({ [name]: value });
    onChange(name);
  }

  #isDark() {
    const { theme } = this.choices;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  #engineOptions(kind) {
    const chosen = this.choices.engines?.[kind]?.chosen;
    const automatic = chosen ? t("default_engine", { name: title(chosen) }) : t("automatic");
    return [
      ["default", automatic],
      ...this.choices.usable(kind).map(({ name }) => [name, title(name)]),
    ];
  }

  #wakeOptions() {
    const words = this.choices.wakeWords().map(({ name, phrase }) => [name, phrase]);
    return [["default", t("automatic")], ["off", t("wake_off")], ...words];
  }

  #showEngines() {
    const { engines } = this.choices;
    if (!engines) return;
    const rows = KINDS.filter((kind) => engines[kind]).flatMap((kind) => {
      const { chosen, why, available } = engines[kind];
      const others = available
        .filter(({ name }) => name !== chosen)
        .map((engine) =>
          h(
            "li",
            { title: engine.reason || null, "data-installed": String(engine.installed) },
            engine.installed ? title(engine.name) : `${title(engine.name)} (${t("not_installed")})`,
          ),
        );
      return [
        h("dt", {}, t(`engine_${kind}`)),
        h(
          "dd",
          {},
          h("strong", {}, title(chosen)),
          why ? h("span", { class: "why" }, why) : null,
          others.length ? h("ul", { class: "others" }, ...others) : null,
        ),
      ];
    });
    byId("engines").replaceChildren(...rows);
  }
}

const TITLES = {
  asr: "ASR",
  tts: "TTS",
  vad: "VAD",
  pocketsphinx: "PocketSphinx",
  faster_whisper: "Whisper",
  espeak: "eSpeak",
  openai: "OpenAI",
};

/** An engine's configured name as people write it. */
export function title(name) {
  return TITLES[name] ?? name.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());
}

function fill(select, options, value) {
  const drawn = options.map(([key, text]) => h("option", { value: key }, text));
  if (
    [...select.options].map((one) => one.value + one.text).join() !==
    drawn.map((one) => one.value + one.text).join()
  ) {
    select.replaceChildren(...drawn);
  }
  select.value = value;
}
