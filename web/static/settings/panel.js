// Parts that the panels of the settings share.

import { h } from "../view/keyed.js";
import { t } from "../words/translate.js";

/**
 * Returns the line below a panel that says how its last action ended.
 *
 * @param {{ text: string, isBad: boolean } | null} note
 * @param {string} testid
 */
export const noteLine = (note, testid) =>
  h(
    "p",
    {
      key: "note",
      class: "model-result",
      role: "status",
      "data-bad": String(note?.isBad ?? false),
      "data-testid": testid,
    },
    note?.text,
  );

/**
 * Returns a button.
 *
 * @param {string} key of the button's text
 * @param {string} testid
 * @param {() => void} click
 * @param {string} kind
 */
export const button = (key, testid, click, kind = "quiet") =>
  h("button", { key: testid, type: "button", class: kind, "data-testid": testid, click }, t(key));
