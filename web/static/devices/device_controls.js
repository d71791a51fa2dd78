// The settings that a device has itself: volume, mute, wake words, and its own switches and choices.

import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";

/**
 * @typedef {{ id: string, words: string, is_active: boolean }} WakeWord
 * @typedef {{ id: string, name: string, is_on: boolean }} Switch
 * @typedef {{ id: string, name: string, options: string[], choice: string }} Select
 * @typedef {{ volume: number | null, is_muted: boolean | null, is_microphone_off: boolean | null,
 *   wake_words: WakeWord[], max_wake_words: number, switches: Switch[], selects: Select[] }} Controls
 *   as the server sends them; null or empty: the device has no such setting
 * @typedef {(changes: object) => Promise<boolean>} Change sends changes; returns whether they were made
 */

/**
 * Returns the settings of a connected device; null if it has none.
 *
 * @param {import("./devices.js").Device} device
 * @param {Change} change
 */
export function deviceControls({ controls }, change) {
  if (!controls) return null;
  const { volume, is_muted: isMuted, is_microphone_off: isOff } = controls;
  const { switches, selects } = controls;
  const shown = [
    volume !== null && slider(volume, change),
    isMuted !== null && toggle("muted", t("c_muted"), isMuted, (is) => change({ is_muted: is })),
    isOff !== null &&
      toggle("microphone", t("c_microphone_off"), isOff, (is) => change({ is_microphone_off: is })),
    ...wakeWords(controls, change),
    ...switches.map(({ id, name, is_on: isOn }) =>
      toggle(`switch-${id}`, name, isOn, (is) => change({ switches: { [id]: is } })),
    ),
    ...selects.map(({ id, name, options, choice }) =>
      choices(`select-${id}`, name, choice, pairs(options), (wanted) =>
        change({ selects: { [id]: wanted } }),
      ),
    ),
  ].filter(Boolean);
  if (!shown.length) return null;
  return h("div", { key: "controls", class: "device-controls" }, ...shown);
}

/**
 * @param {number} volume 0 to 100
 * @param {Change} change
 */
function slider(volume, change) {
  const set = async (/** @type {Event} */ { target }) => {
    const input = /** @type {HTMLInputElement} */ (target);
    if (!(await change({ volume: Number(input.value) }))) input.value = String(volume);
  };
  const range = { type: "range", min: "0", max: "100", step: "1", "data-testid": "control-volume" };
  const input = h("input", { ...range, value: String(volume), change: set });
  return h("label", { key: "volume", class: "check" }, h("span", {}, t("d_volume")), input);
}

/**
 * Returns a checkbox. What the device refuses is shown as before.
 *
 * @param {string} key
 * @param {string} label
 * @param {boolean} isOn
 * @param {(isOn: boolean) => Promise<boolean>} set
 * @param {boolean} [isDisabled]
 */
function toggle(key, label, isOn, set, isDisabled = false) {
  const changed = async (/** @type {Event} */ { target }) => {
    const input = /** @type {HTMLInputElement} */ (target);
    if (!(await set(input.checked))) input.checked = isOn;
  };
  const props = { type: "checkbox", checked: isOn, disabled: isDisabled, change: changed };
  const input = h("input", { ...props, "data-testid": `control-${key}` });
  return h("label", { key, class: "check" }, input, h("span", {}, label));
}

/**
 * Returns a choice among options.
 *
 * @param {string} key
 * @param {string} label
 * @param {string} choice
 * @param {[value: string, text: string][]} options
 * @param {(value: string) => Promise<boolean>} set
 */
function choices(key, label, choice, options, set) {
  const changed = async (/** @type {Event} */ { target }) => {
    const select = /** @type {HTMLSelectElement} */ (target);
    if (!(await set(select.value))) select.value = choice;
  };
  const listed = options.map(([value, text]) =>
    h("option", { key: value, value, selected: value === choice }, text),
  );
  const props = { change: changed, "data-testid": `control-${key}` };
  return h("label", { key, class: "check" }, h("span", {}, label), h("select", props, ...listed));
}

/** @param {string[]} options @returns {[string, string][]} */
const pairs = (options) => options.map((one) => [one, one]);

/**
 * Returns a choice where one wake word can be active, else a checkbox for each: one word at least stays
 * active, and no more than the device can listen for.
 *
 * @param {Controls} controls
 * @param {Change} change
 */
function wakeWords({ wake_words: words, max_wake_words: most }, change) {
  if (!words.length) return [];
  const active = words.filter((one) => one.is_active).map(({ id }) => id);
  if (most <= 1) {
    const options = words.map(
      ({ id, words: text }) => /** @type {[string, string]} */ ([id, text]),
    );
    return [
      choices("wake-word", t("d_wake_word"), active[0] ?? "", options, (id) =>
        change({ wake_words: [id] }),
      ),
    ];
  }
  const boxes = words.map(({ id, words: text, is_active: isActive }) => {
    const set = (/** @type {boolean} */ isWanted) => {
      const others = active.filter((one) => one !== id);
      return change({ wake_words: isWanted ? [...others, id] : others });
    };
    const isFixed = isActive ? active.length === 1 : active.length >= most;
    return toggle(`wake-${id}`, text, isActive, set, isFixed);
  });
  const label = t("c_wake_words", { n: most });
  return [
    h(
      "div",
      { key: "wake-words", class: "device-wake-words", role: "group", "aria-label": label },
      h("span", {}, label),
      ...boxes,
    ),
  ];
}
