// The voices of the server as the settings show them, and where a sample of each is heard.

import { getJson } from "../server/api.js";
import { languageName, t } from "../words/translate.js";

const VOICES = "/v1/audio/voices";

/**
 * @typedef {{ id: string, name: string, language: string, gender: "female" | "male" | null,
 *   engine: string }} Voice as the server lists it
 */

export class VoiceList {
  /** @type {Map<string, Voice>} by id; empty until they are loaded, or if the key may not speak */
  #voices = new Map();

  async load() {
    try {
      const { voices } = await getJson(VOICES);
      this.#voices = new Map(voices.map((/** @type {Voice} */ one) => [one.id, one]));
    } catch {
      // The settings name the voices, too: the server's names stay.
    }
  }

  /**
   * Returns the setting of the voice with the voices' names for people.
   *
   * @param {import("./setting_field.js").Field} field
   */
  described(field) {
    const choices = (field.choices ?? []).map(({ value, label }) => {
      const voice = value === "default" ? undefined : this.#voices.get(value);
      return { value, label: voice ? named(voice) : label };
    });
    return { ...field, choices };
  }
}

/** Returns the path of a voice's sample. @param {string} voice @param {number} speed */
export function samplePath(voice, speed) {
  const id = voice.split("/").map(encodeURIComponent).join("/");
  return `${VOICES}/${id}/sample?speed=${speed}`;
}

/** @param {Voice} voice */
function named({ name, language, gender, engine }) {
  const about = [engine, gender && t(`voice_${gender}`)].filter(Boolean).join(", ");
  return `${languageName(language)}: ${name} (${about})`;
}
