// The page's words in the language of the conversation.

import { DE } from "./de.js";
import { EN } from "./en.js";
import { ES } from "./es.js";
import { FR } from "./fr.js";

/** Every sentence of the page by language and key. */
export const WORDS = { en: EN, de: DE, fr: FR, es: ES };

export const UI_LANGUAGES = Object.keys(WORDS);

let current = "en";

/** The word or sentence for `key`, with `{name}` filled from `values`; English where we have none. */
export function t(key, values = {}) {
  const text = WORDS[current]?.[key] ?? EN[key] ?? key;
  return typeof text === "string"
    ? text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole)
    : text;
}

/** Switch the page to `language` and rewrite everything that is marked in the document. */
export function speakLanguage(language) {
  current = language;
  document.documentElement.lang = WORDS[language] ? language : "en";
  for (const element of document.querySelectorAll("[data-i18n]")) {
    element.textContent = t(element.dataset.i18n);
  }
  for (const element of document.querySelectorAll("[data-i18n-label]")) {
    element.setAttribute("aria-label", t(element.dataset.i18nLabel));
  }
  for (const element of document.querySelectorAll("[data-i18n-placeholder]")) {
    element.setAttribute("placeholder", t(element.dataset.i18nPlaceholder));
  }
}

/** A language's own name for itself: `de` -> Deutsch. */
export function nativeName(language) {
  try {
    const name = new Intl.DisplayNames([language], { type: "language" }).of(language);
    return name.charAt(0).toLocaleUpperCase(language) + name.slice(1);
  } catch {
    return language;
  }
}

/** A language's name in the page's language. */
export function languageName(language) {
  try {
    return new Intl.DisplayNames([current], { type: "language" }).of(language);
  } catch {
    return language;
  }
}

export function formatMs(ms) {
  const rounded = Math.abs(ms) < 10 ? Math.round(ms * 10) / 10 : Math.round(ms);
  return `${new Intl.NumberFormat(current).format(rounded)} ms`;
}

export function formatNumber(value) {
  return new Intl.NumberFormat(current, { maximumFractionDigits: 1 }).format(value);
}
