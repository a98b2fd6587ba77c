// A translation word by word: each word is a button shaded by how much of it came from memory, and opens its neighbours.
import { make, written } from "./elements.js";
import { around } from "./pieces.js";
import { count, decimal, percent, told, visible } from "./strings.js";

const END = "</s>";
const SHOWN = 4; // neighbours of a group before the others are folded away
const CONTEXT = 72; // characters of a neighbour
const UNBROKEN = 24; // characters that are kept on one line

// The words of a translation in a container; the panel shows those of the chosen one.
export function showWords(container, panel, translation, languages) {
  const characters = [...translation.text];
  const between = (start, end) => visible(characters.slice(start, end).join(""));
  const buttons = translation.words.map((word) => wordButton(word, panel.id));
  const pieces = [];
  let done = 0;
  translation.words.forEach((word, number) => {
    const [start, end] = word.span;
    const gap = between(done, start);
    // No line begins with a mark that closes a word, nor with the end alone.
    const closes = pieces.length && !gap && !/[\p{L}\p{N}]/u.test(word.text);
    if (closes && pieces.at(-1).textContent.length < UNBROKEN) unbroken(pieces).append(buttons[number]);
    else pieces.push(...(gap ? [gap] : []), buttons[number]);
    done = Math.max(done, end);
  });
  pieces.push(between(done, characters.length));
  container.replaceChildren(...pieces);
  listen(container, panel, buttons, (number) => neighbours(translation, translation.words[number], languages));
}

function unbroken(pieces) {
  const last = pieces.at(-1);
  if (last instanceof Element && last.classList.contains("unbroken")) return last;
  pieces[pieces.length - 1] = make("span", { class: "unbroken" }, last);
  return pieces.at(-1);
}

function wordButton(word, controls) {
  const name = visible(word.text) || told("end");
  const label = told("word_label", { word: visible(word.text) || told("end_of_sentence"), share: percent(word.share) });
  return make(
    "button",
    {
      type: "button",
      class: word.text ? "word" : "word end",
      "--share": word.share,
      "aria-label": label,
      "aria-expanded": "false",
      "aria-controls": controls,
      tabindex: "-1",
    },
    name,
  );
}

// One word is open at a time; the arrow keys move from word to word, which are one stop for the tab key.
function listen(container, panel, buttons, content) {
  let open = -1;
  const show = (chosen) => {
    open = chosen;
    buttons.forEach((button, number) => button.setAttribute("aria-expanded", String(number === chosen)));
    panel.hidden = chosen < 0;
    panel.replaceChildren(...(chosen < 0 ? [] : [closing(() => close()), ...content(chosen)]));
  };
  const move = (to) => {
    buttons.forEach((button, number) => (button.tabIndex = number === to ? 0 : -1));
    buttons[to].focus();
    if (open >= 0) show(to);
  };
  const close = () => {
    const here = open;
    show(-1);
    if (here >= 0) move(here);
  };
  if (buttons.length) buttons[0].tabIndex = 0;
  buttons.forEach((button, number) =>
    button.addEventListener("click", () => {
      const opens = open !== number;
      show(-1);
      move(number);
      if (opens) show(number);
    }),
  );
  container.onkeydown = (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape" && open >= 0) return close();
    const here = buttons.indexOf(document.activeElement);
    if (here < 0) return;
    const on = getComputedStyle(container).direction === "rtl" ? -1 : 1;
    const to = { ArrowRight: here + on, ArrowLeft: here - on, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(Math.min(Math.max(to, 0), buttons.length - 1));
  };
  panel.onkeydown = (event) => {
    if (event.key === "Escape") close();
  };
  show(-1);
}

function closing(close) {
  return make("button", { type: "button", class: "close", "aria-label": told("close"), click: close }, "✕");
}

function* neighbours(translation, word, languages) {
  const name = visible(word.text) || told("end_of_sentence");
  const share = make("span", { class: "aside" }, told("from_memory", { share: percent(word.share) }));
  yield make("h4", { class: "chosen" }, make("bdi", word.text ? { lang: languages.target } : {}, name), " ", share);
  for (const number of word.tokens) {
    const evidence = translation.evidence[number];
    if (evidence) yield token(translation, number, evidence, word.tokens.length > 1, languages);
  }
}

function token(translation, number, evidence, isNamed, languages) {
  const piece = translation.tokens[number];
  const { probability, model_probability, memory_probability, interpolation_weight } = evidence;
  const shown = make("div", { class: "token" });
  if (isNamed) shown.append(make("h5", {}, pieceName(piece)));
  shown.append(make("p", {}, sentenceOf(evidence)));
  const share = probability ? (interpolation_weight * memory_probability) / probability : 0;
  const memory = probability * Math.min(1, share);
  const parts = { part_memory: memory, part_model: probability - memory, part_others: 1 - probability };
  shown.append(
    make("div", { class: "mixture", "--memory": `${memory * 100}%`, "--both": `${probability * 100}%` }),
    make(
      "p",
      { class: "parts" },
      ...Object.entries(parts).map(([text, part]) => make("span", {}, told(text, { share: percent(Math.max(0, part)) }))),
    ),
  );
  const same = evidence.neighbours.filter((near) => near.token === piece);
  const others = evidence.neighbours.filter((near) => near.token !== piece);
  if (same.length) shown.append(group("same", "same_token", same, translation, languages));
  if (others.length) shown.append(group("other", "other_tokens", others, translation, languages));
  return shown;

  function sentenceOf() {
    if (evidence.forced) return told("forced");
    if (!evidence.neighbours.length) return told("not_looked_up", { probability: percent(probability) });
    const made = told("made_of", {
      model: percent(model_probability),
      memory: percent(memory_probability),
      weight: decimal(interpolation_weight, 2),
      probability: percent(probability),
    });
    return evidence.cached ? `${made} ${told("cached")}` : made;
  }
}

const pieceName = (piece) => (piece === END ? told("end") : visible(piece.replace(/^[▁Ġ]+|[▁Ġ]+$/g, "")) || told("space"));

function group(kind, title, near, translation, languages) {
  const sorted = [...near].sort((one, other) => other.weight - one.weight);
  const weight = percent(Math.min(1, sorted.reduce((sum, each) => sum + each.weight, 0)));
  const list = (some) => make("ol", { class: "near" }, ...some.map((each) => neighbour(each, translation.segments[each.segment], languages)));
  const shown = make("div", { class: kind }, make("p", { class: "group" }, told(title, { weight })), list(sorted.slice(0, SHOWN)));
  const rest = sorted.slice(SHOWN);
  if (rest.length)
    shown.append(make("details", { class: "more" }, make("summary", {}, told("more", { count: count(rest.length) })), list(rest)));
  return shown;
}

function neighbour(near, segment, languages) {
  const [before, marked, after] = around(segment.target, near.span, CONTEXT).map(visible);
  return make(
    "li",
    {},
    make("b", { "--share": near.weight }, percent(near.weight)),
    make(
      "div",
      {},
      make("p", written(languages.target), before, make("mark", {}, marked || pieceName(near.token)), after),
      make("p", { class: "aside", ...written(languages.source) }, visible(segment.source)),
      make("small", {}, make("bdi", {}, visible(segment.origin)), ` · ${told("distance", { distance: decimal(near.distance, 1) })}`),
    ),
  );
}
