// The server's key. It is taken from the address once, kept for this tab, and sent as a Bearer
// token.

import { read, write } from "../state/storage.js";

const STORED = "earshot.key";

/** Moves `#key=...` from the address bar, where it could be seen and bookmarked, into this tab. */
export function takeKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return;
  setKey(key);
  history.replaceState(null, "", location.pathname + location.search);
}

/** Uses this key from now on. @param {string} key */
export const setKey = (key) => write("tab", STORED, key.trim());

/**
 * Returns the headers for a request to the server; none without a key.
 *
 * @returns {Record<string, string>}
 */
export function authorization() {
  const key = read("tab", STORED);
  return key ? { Authorization: `Bearer ${key}` } : {};
}
