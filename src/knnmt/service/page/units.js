// The units of a translated document, each source beside its translation, those to look at first at the top.
import { changes, make, written } from "./elements.js";
import { ask } from "./service.js";
import { count, percent, told, visible } from "./strings.js";

const FETCHED = 1_000; // units of a request
const MOST = 10_000; // units that are kept of a document
const SHOWN = 50; // units that are shown at once
const STATES = { fuzzy: "unit_fuzzy", finished: "unit_finished" };

// The answer of the service with all units, or with as many as are kept.
export async function fetchUnits(path) {
  const units = [];
  for (;;) {
    const answer = await ask("GET", `${path}/units?first=${units.length}&limit=${FETCHED}`);
    units.push(...answer.units);
    if (!answer.units.length || units.length >= Math.min(answer.of, MOST)) return { ...answer, units };
  }
}

// How many units need somebody, in words; nothing if none does.
export function faults({ units }) {
  const failed = units.filter((unit) => unit.state === "failed").length;
  const warned = units.filter((unit) => unit.warnings).length;
  return failed || warned ? told("units_faults", { failed: count(failed), warned: count(warned) }) : "";
}

let numbered = 0;

// The view of a document's units, and the button that opens and closes it.
export function unitsView(name, found) {
  const id = `units-${++numbered}`;
  const view = make("div", { class: "units", id, role: "group", "aria-labelledby": `${id}-title`, hidden: true });
  const button = make("button", { type: "button", "aria-expanded": "false", "aria-controls": id }, told("look_through", { name }));
  button.addEventListener("click", () => (view.hidden ? show(0) : close()));
  view.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  return { button, view };

  // What is shown has the focus, so that the keyboard and a screen reader begin at its first unit.
  function show(first) {
    const { units, of } = found;
    const some = units.slice(first, first + SHOWN);
    const numbers = { name, first: count(first + 1), last: count(first + some.length), count: count(of) };
    const title = make("h3", { id: `${id}-title`, tabindex: "-1" }, told("units_title", numbers));
    const turn = (text, to) => make("button", { type: "button", disabled: to < 0 || to >= units.length, click: () => show(to) }, told(text));
    const turning = make("div", { class: "row" }, turn("previous_units", first - SHOWN), turn("next_units", first + SHOWN));
    turning.hidden = units.length <= SHOWN;
    const hint = [told("units_hint"), ...(of > units.length ? [told("units_kept", { count: count(units.length) })] : [])].join(" ");
    const items = some.map((unit) => item(unit, found));
    view.replaceChildren(title, make("p", { class: "aside" }, hint), make("ol", { start: first + 1 }, ...items), turning);
    view.hidden = false;
    button.setAttribute("aria-expanded", "true");
    title.focus();
  }

  function close() {
    view.hidden = true;
    view.replaceChildren();
    button.setAttribute("aria-expanded", "false");
    button.focus();
  }
}

function item(unit, { source_language: source, target_language: target }) {
  const about = [];
  const say = (text, kind = "") => about.push(make("span", { class: kind }, text));
  if (unit.state === "failed") say(told("failed", { message: visible(unit.error ?? "") }), "failed");
  else if (STATES[unit.state]) say(told(STATES[unit.state]));
  else say(unit.kind ? told(`kind_${unit.kind.replace(" ", "_")}`) : told("unit_untouched"));
  if (unit.certainty !== undefined && unit.kind !== "exact match") say(told("certainty", { percent: percent(unit.certainty / 100) }));
  for (const each of unit.warnings ?? []) say(visible(each.message), "warned");
  about.push(make("small", {}, make("bdi", {}, visible(unit.unit))));
  return make(
    "li",
    {},
    pair(make("p", written(source), visible(unit.source)), make("p", written(target), visible(unit.text))),
    make("p", { class: "aside about-it" }, ...about),
    ...(unit.match ? [closest(unit, source, target)] : []),
  );
}

const pair = (...sides) => make("div", { class: "sides both" }, ...sides);

// The closest segment of the memory, folded away; what differs is looked for only when somebody opens it.
function closest({ source: text, match }, source, target) {
  const shown = make("details", { class: "more" }, make("summary", {}, told("unit_match", { percent: percent(match.score / 100) })));
  shown.addEventListener(
    "toggle",
    () =>
      shown.append(
        pair(make("p", written(source), ...changes(match.source, text)), make("p", written(target), visible(match.target))),
        make("small", {}, make("bdi", {}, visible(match.origin))),
      ),
    { once: true },
  );
  return shown;
}
