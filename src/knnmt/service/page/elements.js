// Elements of the page. Text is always put in as text: nothing is ever parsed.
import { differences } from "./pieces.js";
import { visible } from "./strings.js";

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

// The attributes of text in a language, which may be written from either side.
export const written = (language) => ({ dir: "auto", lang: language || undefined });

// A text, in which what another text lacks is marked.
export const changes = (text, other) =>
  differences(text, other).map(([piece, isNew]) => (isNew && piece.trim() ? make("mark", { class: "changed" }, visible(piece)) : visible(piece)));
