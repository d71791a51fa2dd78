// The fields of the studio: text, voices, language of the text, speed.

import { aboutVoice } from "../settings/voice_list.js";
import { icon } from "../view/icon.js";
import { h } from "../view/keyed.js";
import { formatNumber, languageName, t } from "../words/translate.js";

/**
 * @typedef {import("../settings/voice_list.js").Voice} Voice
 * @typedef {import("../view/keyed.js").Description} Description
 * @typedef {"text" | "voice" | "language" | "speed"} FieldName
 * @typedef {{ target: HTMLInputElement & HTMLSelectElement & HTMLTextAreaElement }} Changed
 */

/** Id of a field's input. @param {FieldName} name */
export const idOf = (name) => `studio-${name}-input`;

/**
 * @param {object} shown
 * @param {number} shown.chars number of characters of the text
 * @param {number} shown.most
 * @param {string | undefined} shown.problem
 * @param {(text: string) => void} shown.change
 */
export function textField({ chars, most, problem, change }) {
  const props = {
    rows: "5",
    class: "studio-input",
    "aria-describedby": ["studio-count", ...problemId("text", problem)].join(" "),
    input: (/** @type {Changed} */ { target }) => change(target.value),
    keydown: (/** @type {any} */ { key, ctrlKey, metaKey, target }) =>
      key === "Enter" && (ctrlKey || metaKey) && target.form.requestSubmit(),
  };
  const count = { id: "studio-count", class: "setting-help", "data-over": String(chars > most) };
  return [
    ...field("text", t("st_text"), "textarea", props, [], problem),
    h(
      "p",
      { key: "count", ...count, "data-testid": "studio-count" },
      t("st_count", { n: formatNumber(chars), most: formatNumber(most) }),
    ),
  ];
}

/**
 * Returns the choice of the language whose voices are listed.
 *
 * @param {Voice[]} voices all voices
 * @param {string} listed empty: all languages
 * @param {(language: string) => void} change
 */
export function listedField(voices, listed, change) {
  const spoken = [...new Set(voices.flatMap(({ languages }) => languages))];
  const id = "studio-listed";
  const props = {
    id,
    "data-testid": id,
    change: (/** @type {Changed} */ { target }) => change(target.value),
  };
  return [
    h("label", { for: id }, t("st_listed")),
    h("select", props, ...options(["", ...byName(spoken)], listed, "st_all")),
  ];
}

/**
 * Returns the list of voices, of which one is chosen. Each can be heard.
 *
 * @param {Voice[]} voices those that are listed
 * @param {object} shown
 * @param {string} shown.chosen id of a voice
 * @param {boolean} shown.namesLanguage whether the rows say in which language a voice speaks
 * @param {object} actions
 * @param {(id: string) => void} actions.choose
 * @param {(id: string) => void} actions.hear
 * @param {string | undefined} problem
 */
export function voiceField(voices, { chosen, namesLanguage }, actions, problem) {
  const about = problemId("voice", problem).join(" ") || null;
  const group = { role: "radiogroup", "aria-label": t("st_voice"), "aria-describedby": about };
  return [
    h(
      "div",
      { key: "voices", class: "studio-list", "data-testid": "studio-voices", ...group },
      ...voices.map((voice) => row(voice, voice.id === chosen, namesLanguage, actions)),
    ),
    problemLine("voice", problem),
  ];
}

/**
 * @param {Voice} voice
 * @param {boolean} isChosen
 * @param {boolean} namesLanguage
 * @param {{ choose: (id: string) => void, hear: (id: string) => void }} actions
 */
function row(voice, isChosen, namesLanguage, { choose, hear }) {
  const { id, language } = voice;
  const isDefault = id === "default";
  const name = isDefault ? t("automatic") : voice.name;
  const spoken = namesLanguage && !isDefault && languageName(language);
  const about = [spoken, aboutVoice(voice)].filter(Boolean);
  const radio = {
    type: "radio",
    name: "voice",
    value: id,
    id: isChosen ? idOf("voice") : null,
    checked: isChosen,
    change: () => choose(id),
  };
  const sample = {
    type: "button",
    class: "icon-button",
    // The arrow keys go through the voices; the tabulator key goes on to the sample of the chosen one.
    tabindex: isChosen ? "0" : "-1",
    "aria-label": t("st_hear", { name }),
    title: t("st_hear", { name }),
    "data-testid": "studio-hear",
    click: () => hear(id),
  };
  return h(
    "div",
    { key: id, class: "studio-voice", "data-testid": "studio-voice", "data-voice": id },
    h(
      "label",
      {},
      h("input", radio),
      h(
        "span",
        { class: "studio-name" },
        h("strong", {}, name),
        " ",
        h("span", { class: "setting-help" }, about.join(" · ")),
      ),
    ),
    h("button", sample, icon("volume")),
  );
}

/**
 * Returns the choice of the text's language.
 *
 * @param {string[]} spoken languages of the chosen voice
 * @param {string} chosen empty: the server looks at the text
 * @param {boolean} canDetect whether empty is allowed
 * @param {(language: string) => void} change
 * @param {string | undefined} problem
 */
export function languageField(spoken, chosen, canDetect, change, problem) {
  const props = { change: (/** @type {Changed} */ { target }) => change(target.value) };
  const choices = [...(canDetect ? [""] : []), ...byName(spoken)];
  const made = options(choices, chosen, "automatic");
  return h(
    "div",
    { key: "language", class: "setting" },
    ...field("language", t("st_language"), "select", props, made, problem),
  );
}

/**
 * @param {number} speed
 * @param {(speed: number) => void} change
 * @param {string | undefined} problem
 */
export function speedField(speed, change, problem) {
  const props = {
    type: "range",
    min: "0.25", // what the server allows
    max: "4",
    step: "0.05",
    value: String(speed),
    "aria-valuetext": `${formatNumber(speed, 2)} ×`,
    input: (/** @type {Changed} */ { target }) => change(Number(target.value)),
  };
  const label = `${t("set_assistant_speed")}: ${formatNumber(speed, 2)} ×`;
  return h(
    "div",
    { key: "speed", class: "setting" },
    ...field("speed", label, "input", props, [], problem),
  );
}

/**
 * Returns a field with its label, and with what is wrong below it.
 *
 * @param {FieldName} name
 * @param {string} label
 * @param {string} tag
 * @param {import("../view/keyed.js").Props} props
 * @param {Description[]} children
 * @param {string | undefined} problem
 */
function field(name, label, tag, props, children, problem) {
  const id = idOf(name);
  const input = {
    "aria-describedby": problemId(name, problem).join(" ") || null,
    ...props,
    id,
    key: "input",
    "aria-invalid": problem ? "true" : null,
    "data-testid": id,
  };
  return [
    h("label", { key: "label", for: id }, label),
    h(tag, input, ...children),
    problemLine(name, problem),
  ];
}

/**
 * @param {FieldName} name
 * @param {string | undefined} problem
 */
const problemId = (name, problem) => (problem ? [`studio-${name}-problem`] : []);

/**
 * @param {FieldName} name
 * @param {string | undefined} problem
 */
const problemLine = (name, problem) => {
  const id = `studio-${name}-problem`;
  const props = { key: "problem", id, class: "setting-problem", "data-testid": id };
  return problem ? h("p", props, problem) : null;
};

/** @param {string[]} languages */
const byName = (languages) =>
  languages.toSorted((one, other) => languageName(one).localeCompare(languageName(other)));

/**
 * @param {string[]} languages empty: its words are those of `none`
 * @param {string} chosen
 * @param {string} none
 */
const options = (languages, chosen, none) =>
  languages.map((one) =>
    h(
      "option",
      { key: one, value: one, selected: one === chosen },
      one ? languageName(one) : t(none),
    ),
  );
