// What the page says, in the language that was chosen; and how it shows numbers and text of others.
import de from "./de.js";
import en from "./en.js";

const STRINGS = { de, en };
const KEPT = "knnmt.language";
let language = "en";

export function told(name, values = {}) {
  return STRINGS[language][name].replace(/\{(\w+)\}/g, (_, value) => String(values[value]));
}

// What may not be translated yet, such as the name of a new setting.
export const toldOr = (name, otherwise) => (name in STRINGS[language] ? told(name) : otherwise);

export function firstLanguage() {
  const kept = localStorage.getItem(KEPT);
  return [kept, ...navigator.languages.map((each) => each.slice(0, 2))].find((each) => each in STRINGS) ?? "en";
}

// Show all that stands in the document itself in a language.
export function useLanguage(chosen) {
  language = chosen;
  localStorage.setItem(KEPT, chosen);
  document.documentElement.lang = chosen;
  for (const each of document.querySelectorAll("[data-text]")) each.textContent = told(each.dataset.text);
}

export const count = (number) => new Intl.NumberFormat(language).format(number);

// A time in seconds since 1970 for people.
export const moment = (seconds) =>
  new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).format(new Date(seconds * 1000));

export const decimal = (number, digits) =>
  new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(number);

// A probability or a share for people: 62%, 3.4%, under 0.1%.
export function percent(part) {
  const tenths = (part > 0 && part < 0.0995) || (part >= 0.995 && part < 0.9995);
  const shown = (number, digits) =>
    new Intl.NumberFormat(language, { style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits }).format(number);
  return part > 0 && part < 0.0005 ? told("under", { percent: shown(0.001, 1) }) : shown(part, tenths ? 1 : 0);
}

// Characters that would act, written out: controls, line ends, and what turns the direction of writing.
const ACTING = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
const PICTURES = { "\n": "↵", "\t": "⇥", "\u007f": "␡" };

export function visible(text) {
  return text.replace(ACTING, (found) => {
    const code = found.charCodeAt(0);
    if (PICTURES[found]) return PICTURES[found];
    return code < 32 ? String.fromCharCode(0x2400 + code) : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}
