// The browser's storage for this page. It may be forbidden, full, or changed by hand. Without it,
// values last as long as the page.

/**
 * @typedef {"tab" | "browser"} Area tab: kept until the tab is closed; browser: kept for later visits
 */

/** Values that the browser did not store. @type {Map<string, string>} */
const inMemory = new Map();

// Functions, because an access to `sessionStorage` already throws where storage is forbidden.
const AREAS = { tab: () => sessionStorage, browser: () => localStorage };

/**
 * Returns the text under `name`, or null.
 *
 * @param {Area} area
 * @param {string} name
 * @returns {string | null}
 */
export function read(area, name) {
  try {
    return inMemory.get(name) ?? AREAS[area]().getItem(name);
  } catch {
    return inMemory.get(name) ?? null;
  }
}

/**
 * Stores a text under `name`.
 *
 * @param {Area} area
 * @param {string} name
 * @param {string} text
 */
export function write(area, name, text) {
  try {
    AREAS[area]().setItem(name, text);
    inMemory.delete(name);
  } catch {
    inMemory.set(name, text);
  }
}

/**
 * Removes what is stored under `name`, if anything.
 *
 * @param {Area} area
 * @param {string} name
 */
export function remove(area, name) {
  inMemory.delete(name);
  try {
    AREAS[area]().removeItem(name);
  } catch {
    // Storage is forbidden, so there is nothing to remove.
  }
}

/**
 * Returns the value under `name`; null if there is none or it is not JSON.
 *
 * @param {Area} area
 * @param {string} name
 * @returns {any}
 */
export function readJson(area, name) {
  try {
    return JSON.parse(read(area, name) ?? "null");
  } catch {
    return null;
  }
}

/**
 * Stores a value as JSON under `name`.
 *
 * @param {Area} area
 * @param {string} name
 * @param {any} value
 */
export const writeJson = (area, name, value) => write(area, name, JSON.stringify(value));
