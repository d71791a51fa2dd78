// Files that the page made, given to the browser to save.

import { byId, update } from "./keyed.js";

/**
 * Lets the browser save a file.
 *
 * @param {string} ending
 * @param {string} type
 * @param {string | Blob} content
 */
export function save(ending, type, content) {
  const link = /** @type {HTMLAnchorElement} */ (byId("download"));
  const address = URL.createObjectURL(new Blob([content], { type }));
  const day = new Date().toISOString().slice(0, 10);
  update(link, { href: address, download: `earshot-${day}.${ending}` });
  link.click();
  URL.revokeObjectURL(address);
}
