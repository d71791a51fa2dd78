// The slider for the volume of the assistant's voice.

import { byId, update } from "../view/keyed.js";
import { icon } from "../view/icon.js";

export class VolumeControl {
  /**
   * @param {import("../app.js").PageStore} store
   * @param {import("../call/speaker.js").Speaker} speaker
   * @param {(volume: number) => void} choose called with a volume of 0 to 1
   */
  constructor(store, speaker, choose) {
    const slider = /** @type {HTMLInputElement} */ (byId("volume"));
    update(byId("volume-icon"), {}, [icon("volume")]);
    update(byId("volume-choice"), { hidden: !speaker.canSetVolume() });
    update(slider, { input: () => choose(Number(slider.value) / 100) });
    store.watch(["choices"], ({ choices: { volume } }) => {
      speaker.setVolume(volume);
      update(slider, { value: Math.round(volume * 100) });
    });
  }
}
