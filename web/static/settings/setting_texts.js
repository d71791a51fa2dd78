// Labels, choices and help of the settings in the page's language. The server sends them in English.

/** The server's English text -> the text in the page's language. @type {Record<string, string>} */
let texts = {};

/**
 * Loads the texts of a language. They stay in English if its file does not come.
 *
 * @param {string} language one of the page's languages
 */
export async function loadSettingTexts(language) {
  texts = {};
  if (language === "en") return;
  try {
    texts = (await import(`../words/settings/${language}.js`)).SETTING_TEXTS;
  } catch {
    texts = {};
  }
}

/** Returns a text of the server in the page's language; in English if it is unknown. @param {string} text */
export const settingText = (text) => texts[text] ?? text;
