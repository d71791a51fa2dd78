// The form for the settings of a key: what each new conversation of the person begins with.

import { cancel, field, labelled, onSubmit, submit } from "../view/form.js";
import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";

/**
 * @typedef {{ voice: string, language: string, speed: number | null, asr: string,
 *   instructions: string }} KeyProfile the fields that this form shows
 */

/**
 * Returns the form. An empty field means the server's own setting.
 *
 * @param {KeyProfile} profile
 * @param {{ close: () => void, save: (profile: KeyProfile) => void }} handlers
 */
export function keySettings({ voice, language, speed, asr, instructions }, { close, save }) {
  const placeholder = t("as_everywhere");
  const text = { type: "text", maxlength: "128", autocomplete: "off", placeholder };
  const rate = { type: "number", min: "0.25", max: "1.5", step: "0.05", placeholder };
  const prompt = { name: "instructions", rows: "3", maxlength: "10000", placeholder };
  const props = onSubmit("settings", "device-form edit", (fields) =>
    save({
      voice: fields.voice.trim(),
      language: fields.language.trim(),
      speed: fields.speed === "" ? null : Number(fields.speed),
      asr: fields.asr.trim(),
      instructions: fields.instructions,
    }),
  );
  return h(
    "form",
    props,
    field("d_voice", { ...text, name: "voice", value: voice, "data-testid": "key-voice" }),
    field("d_language", {
      ...text,
      name: "language",
      value: language,
      "data-testid": "key-language",
    }),
    field("set_assistant_speed", {
      ...rate,
      name: "speed",
      value: speed ?? "",
      "data-testid": "key-speed",
    }),
    field("set_asr_model", { ...text, name: "asr", value: asr, "data-testid": "key-asr" }),
    labelled(
      "d_prompt",
      h("textarea", { ...prompt, value: instructions, "data-testid": "key-instructions" }),
    ),
    h(
      "div",
      { class: "form-end" },
      cancel("d_cancel", close),
      submit("d_save", "key-settings-save"),
    ),
  );
}
