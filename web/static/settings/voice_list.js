// The voices of the server as the settings show them, and where a sample of each is heard.

import { getJson } from "../server/api.js";
import { languageName, t } from "../words/translate.js";

const VOICES = "/v1/audio/voices";

/**
 * @typedef {{ id: string, name: string, language: string, languages: string[],
 *   gender: "female" | "male" | null, engine: string }} Voice as the server lists it
 */

export class VoiceList {
  /** @type {Map<string, Voice>} by id; empty until they are loaded, or if the key may not speak */
  #voices = new Map();

  /** Loads the voices. Rejects with `Refused`; then those of the last time stay. */
  async load() {
    const { voices } = await getJson(VOICES);
    this.#voices = new Map(voices.map((/** @type {Voice} */ one) => [one.id, one]));
  }

  /** Returns all voices, the server's own choice first. */
  all() {
    return [...this.#voices.values()];
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

/**
 * Returns the path of a voice's sample.
 *
 * @param {string} voice
 * @param {number} speed
 * @param {string} [language] of the sentence, for a voice that speaks several; empty: its own
 */
export function samplePath(voice, speed, language) {
  const id = voice.split("/").map(encodeURIComponent).join("/");
  const path = `${VOICES}/${id}/sample?speed=${speed}`;
  return language ? `${path}&language=${language}` : path;
}

/** Returns engine and gender of a voice. @param {Voice} voice */
export const aboutVoice = ({ engine, gender }) =>
  [engine, gender && t(`voice_${gender}`)].filter(Boolean).join(", ");

/** @param {Voice} voice */
const named = (voice) => `${languageName(voice.language)}: ${voice.name} (${aboutVoice(voice)})`;
