// Settings: a control for each that the service describes. Requests name only those that somebody has set.
import { byId, make } from "./elements.js";
import { ask } from "./service.js";
import { told, toldOr } from "./strings.js";

let known = [];

export async function listSettings() {
  known = await ask("GET", "page/settings.json");
  showSettings();
}

// In the language of the page; what was entered stays.
export function showSettings() {
  const before = Object.fromEntries(known.map((each) => [each.name, field(each)?.value ?? ""]));
  byId("settings").replaceChildren(...known.flatMap(control));
  for (const each of known) field(each).value = before[each.name];
}

// For a body of JSON.
export const settingsInBody = () => Object.fromEntries(entered().map(([each, values]) => [each.name, each.many ? values : value(each, values[0])]));

// For the query of a document: pairs of a name and a text.
export const settingsInQuery = () =>
  entered()
    .filter(([each]) => each.documents)
    .flatMap(([each, values]) => values.map((text) => [each.parameter, text]));

const field = ({ name }) => byId(`setting-${name}`);

function entered() {
  const found = known.map((each) => [each, field(each).value.split("\n").map((line) => line.trim()).filter(Boolean)]);
  return found.filter(([, values]) => values.length);
}

function value({ kind }, text) {
  if (kind === "bool") return text === "yes";
  return kind === "str" ? text : Number(text);
}

function control(each) {
  const id = `setting-${each.name}`;
  const usual = told("setting_usual", { value: each.usual });
  const hint = make("p", { class: "aside", id: `${id}-hint`, lang: "en" }, each.help);
  const about = { id, "aria-describedby": hint.id };
  const choices = each.kind === "bool" ? ["yes", "no"] : each.choices;
  let input;
  if (choices.length) input = make("select", about, new Option(usual, ""), ...choices.map((choice) => new Option(toldOr(`setting_${choice}`, choice), choice)));
  else if (each.many) input = make("textarea", { ...about, rows: "2", spellcheck: "false" });
  else if (each.kind === "str") input = make("input", { ...about, placeholder: usual });
  else {
    const bounds = { min: each.least, max: each.most, step: each.kind === "int" ? "1" : "any" };
    input = make("input", { ...about, ...bounds, type: "number", placeholder: usual });
  }
  const label = make("label", { for: id }, toldOr(`setting_${each.name}`, each.name.replaceAll("_", " ")));
  return [make("div", { class: "row" }, label, input), hint];
}
