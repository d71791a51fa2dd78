// The page's words, in the language of the browser or in the one that the user chose for the page.

import { update } from "../view/keyed.js";
import { DE } from "./de.js";
import { EN } from "./en.js";
import { ES } from "./es.js";
import { FR } from "./fr.js";
import { IT } from "./it.js";
import { NL } from "./nl.js";
import { PT } from "./pt.js";
import { ZH } from "./zh.js";

/** Every sentence of the page by language and key. */
export const WORDS = { en: EN, de: DE, fr: FR, es: ES, it: IT, nl: NL, pt: PT, zh: ZH };

/** Codes of the languages that the page itself speaks. */
export const UI_LANGUAGES = Object.keys(WORDS);

/** Code of the language in which the page speaks now. */
let current = "en";

/** Returns the first of the browser's languages that the page is translated into. */
export function browserLanguage() {
  const wanted = navigator.languages.map((tag) => tag.toLowerCase().split("-")[0]);
  return wanted.find((one) => UI_LANGUAGES.includes(one)) ?? "en";
}

/**
 * Returns the word or sentence for `key`, with `{name}` filled from `values`. In English where
 * there is no translation.
 *
 * @param {string} key
 * @param {Record<string, any>} [values]
 * @returns {any} a string; of `suggestions` an array
 */
export function t(key, values = {}) {
  const text = sentences(current)?.[key] ?? sentences("en")[key] ?? key;
  return typeof text === "string"
    ? text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole)
    : text;
}

/**
 * Returns the example sentences in a spoken language, for a user who reads another one.
 *
 * @param {string} language
 * @returns {string[]} in the page's language if there are none
 */
export function suggestions(language) {
  return sentences(language)?.suggestions ?? t("suggestions");
}

/** @param {string} language @returns {any} by key; undefined where the page does not speak it */
const sentences = (language) => WORDS[/** @type {keyof typeof WORDS} */ (language)];

/**
 * Switches to `language` and translates the marked texts of the page's HTML.
 *
 * @param {string} language
 */
export function speakLanguage(language) {
  current = language;
  update(document.documentElement, { lang: language });
  for (const element of marked("[data-i18n]")) {
    update(element, {}, [t(element.dataset.i18n ?? "")]);
  }
  for (const element of marked("[data-i18n-label]")) {
    update(element, { "aria-label": t(element.dataset.i18nLabel ?? "") });
  }
  for (const element of marked("[data-i18n-placeholder]")) {
    update(element, { placeholder: t(element.dataset.i18nPlaceholder ?? "") });
  }
}

/** Returns the elements that are to be translated. @param {string} selector @returns {NodeListOf<HTMLElement>} */
const marked = (selector) => document.querySelectorAll(selector);

/** Returns a language's own name: `de` -> Deutsch. @param {string} language */
export function nativeName(language) {
  try {
    const name = new Intl.DisplayNames([language], { type: "language" }).of(language) ?? language;
    return name.charAt(0).toLocaleUpperCase(language) + name.slice(1);
  } catch {
    return language;
  }
}

/** Returns a language's name in the page's language. @param {string} language */
export function languageName(language) {
  try {
    return new Intl.DisplayNames([current], { type: "language" }).of(language) ?? language;
  } catch {
    return language;
  }
}

/** Returns a time with its unit, with one decimal below 10 ms. @param {number} ms */
export function formatMs(ms) {
  const rounded = Math.abs(ms) < 10 ? Math.round(ms * 10) / 10 : Math.round(ms);
  return `${new Intl.NumberFormat(current).format(rounded)} ms`;
}

/** Returns a size in megabytes, or in gigabytes from 1 GB on. @param {number} bytes */
export function formatBytes(bytes) {
  const isLarge = bytes >= 1e9;
  const unit = isLarge ? "gigabyte" : "megabyte";
  const style = { style: "unit", unit, maximumFractionDigits: isLarge ? 1 : 0 };
  return new Intl.NumberFormat(current, /** @type {Intl.NumberFormatOptions} */ (style)).format(
    bytes / (isLarge ? 1e9 : 1e6),
  );
}

/** Returns a duration in seconds, or in minutes from 100 s on. @param {number} seconds */
export function formatSeconds(seconds) {
  const isLong = seconds >= 100;
  const unit = isLong ? "minute" : "second";
  const value = isLong ? Math.ceil(seconds / 60) : seconds;
  return new Intl.NumberFormat(current, { style: "unit", unit }).format(value);
}

/**
 * Returns a number as the language writes it.
 *
 * @param {number} value
 * @param {number} [decimals] at most so many
 */
export function formatNumber(value, decimals = 1) {
  return new Intl.NumberFormat(current, { maximumFractionDigits: decimals }).format(value);
}

/** Returns a moment today as its time, an older one as its date. @param {string} iso */
export function formatMoment(iso) {
  const at = new Date(iso);
  const isToday = at.toDateString() === new Date().toDateString();
  /** @type {Intl.DateTimeFormatOptions} */
  const style = isToday ? { timeStyle: "short" } : { dateStyle: "medium" };
  return new Intl.DateTimeFormat(current, style).format(at);
}
