// The browser's storage for this page. It may be forbidden, full, or changed by hand; then what was
// stored lasts as long as the page.

/** @typedef {"tab" | "browser"} Area `tab`: until it is closed */

/** @type {Map<string, string>} */
const inMemory = new Map();

// Where storage is forbidden, naming it is an error already.
const AREAS = { tab: () => sessionStorage, browser: () => localStorage };

/**
 * The text under `name`, or null.
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
    // Forbidden: then there is nothing to remove.
  }
}

/**
 * The value under `name`; null when there is none or it is not JSON.
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
