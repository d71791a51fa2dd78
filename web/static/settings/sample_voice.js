// Lets a voice of the server be heard.

import { request } from "../server/api.js";

const SPEAK_MS = 30_000; // a neural voice may have to load first

export class SampleVoice {
  /** @type {AudioBufferSourceNode | null} */
  #playing = null;
  /** What is asked for now; null: nothing. @type {object | null} */
  #asked = null;

  /**
   * @param {() => AudioContext} audio returns the page's AudioContext
   * @param {() => string} speaker returns the id of the speaker; empty: the system's choice
   * @param {(error: unknown) => void} onFailed
   */
  constructor(audio, speaker, onFailed) {
    this.audio = audio;
    this.speaker = speaker;
    this.onFailed = onFailed;
  }

  /** Stops what is spoken now, and what has not come yet. */
  stop() {
    this.#playing?.stop();
    this.#playing = this.#asked = null;
  }

  /**
   * Speaks `text`, and stops what is spoken now.
   *
   * @param {string} text
   * @param {{ voice: string, speed: number }} how
   */
  speak(text, how) {
    return this.hear("/v1/audio/speech", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model: "default", input: text, response_format: "wav", ...how }),
    });
  }

  /**
   * Plays a sound file of the server, and stops what is spoken now. Sound as a Blob would need a
   * wider policy for the page, so it is decoded here.
   *
   * @param {string} path
   * @param {RequestInit} [options]
   */
  async hear(path, options) {
    /** @type {AudioContext & { setSinkId?: (id: string) => Promise<void> }} */
    const context = this.audio();
    this.stop();
    const asked = (this.#asked = { path });
    try {
      // Without the chosen speaker, as in Firefox, the system's is heard.
      await context.setSinkId?.(this.speaker()).catch(() => undefined);
      const response = await request(path, { limitMs: SPEAK_MS, ...options });
      const source = context.createBufferSource();
      source.buffer = await context.decodeAudioData(await response.arrayBuffer());
      if (this.#asked !== asked) return; // stopped meanwhile
      source.connect(context.destination);
      source.start();
      this.#playing = source;
    } catch (error) {
      this.onFailed(error);
    }
  }
}
