// A button that copies a text, and says so for a moment.

import { t } from "../words/translate.js";
import { icon } from "./icon.js";
import { h, update } from "./keyed.js";

const SAID_MS = 2_000; // long enough to notice the tick

/**
 * @param {string} name of the key of the button's label
 * @param {string} text
 */
export const copyButton = (name, text) =>
  h(
    "button",
    {
      key: name,
      type: "button",
      class: "copy",
      "data-testid": name,
      "aria-label": t(name),
      title: t(name),
      click: (/** @type {Event} */ { currentTarget }) =>
        copyAndSay(/** @type {HTMLElement} */ (currentTarget), name, text),
    },
    icon("copy"),
  );

/**
 * @param {HTMLElement} button
 * @param {string} name
 * @param {string} text
 */
async function copyAndSay(button, name, text) {
  await copy(text);
  update(button, { "data-copied": "true", "aria-label": t("copied") }, [icon("check")]);
  setTimeout(() => {
    update(button, { "data-copied": null, "aria-label": t(name) }, [icon("copy")]);
  }, SAID_MS);
}

/** Puts a text on the clipboard. @param {string} text */
export async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Without https there is only the old way.
  const give = (/** @type {ClipboardEvent} */ event) => {
    event.clipboardData?.setData("text/plain", text);
    event.preventDefault();
  };
  document.addEventListener("copy", give, { once: true });
  document.execCommand("copy");
  document.removeEventListener("copy", give);
}
