// The browser's storage for this page. It may be forbidden, full, or changed by hand. Without it,
// values last as long as the page.

/** @typedef {"tab" | "browser"} Area `tab`: until the tab is closed */

/** @type {Map<string, string>} */
const inMemory = new Map();

// Functions, because where storage is forbidden even naming it is an error.
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
 * @param {Area} area
 * @param {string} name
 * @param {any} value
 */
export const writeJson = (area, name, value) => write(area, name, JSON.stringify(value));
