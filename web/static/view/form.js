// Pieces of small forms: fields with their labels, and the buttons at the end.

import { t } from "../words/translate.js";
import { h } from "./keyed.js";

/**
 * Returns the props of a form that calls `send` with its fields when it is submitted.
 *
 * @param {string} key
 * @param {string} name class of the form
 * @param {(fields: Record<string, string>) => void} send gets the values by the names of the fields
 */
export const onSubmit = (key, name, send) => ({
  key,
  class: name,
  submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    const fields = new FormData(/** @type {HTMLFormElement} */ (event.target));
    send(/** @type {Record<string, string>} */ (Object.fromEntries(fields)));
  },
});

/**
 * @param {string} key of the button's text
 * @param {() => void} click
 */
export const cancel = (key, click) =>
  h("button", { type: "button", class: "quiet", click }, t(key));

/**
 * @param {string} key of the button's text
 * @param {string} testid
 */
export const submit = (key, testid) =>
  h("button", { type: "submit", class: "strong", "data-testid": testid }, t(key));

/**
 * @param {string} key of the label's text
 * @param {import("./keyed.js").Props} props of the input
 */
export const field = (key, props) => labelled(key, h("input", props));

/**
 * @param {string} key of the label's text
 * @param {import("./keyed.js").Description} input
 */
export const labelled = (key, input) => h("label", {}, h("span", {}, t(key)), input);
