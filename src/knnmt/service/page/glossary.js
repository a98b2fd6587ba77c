// Glossaries: terms that are typed, and files of terms that the service keeps.
import { byId } from "./elements.js";
import { ask, Refused, remove } from "./service.js";
import { count, told, visible } from "./strings.js";

const BYTES = "application/octet-stream";

// page: its domain(), speak(), fail() and succeed()
export function listenForGlossaries(page) {
  const choice = byId("glossaries");
  const field = byId("glossary-file");
  let known = [];

  // Those in a direction of the domain; the chosen one stays chosen.
  function show(wanted = choice.value) {
    const pairs = directionsOf(page.domain());
    const fitting = known.flatMap((each) => each.dictionaries.filter((one) => pairs.some((pair) => isOf(one, pair))).map((one) => ({ ...each, terms: one.terms })));
    const named = fitting.map((each) => new Option(told("glossary_option", { name: visible(each.name), count: count(each.terms) }), each.id));
    choice.replaceChildren(new Option(told("no_glossary"), ""), ...named);
    choice.value = fitting.some((each) => each.id === wanted) ? wanted : "";
    showChosen();
  }

  const chosen = () => known.find((each) => each.id === choice.value);

  function showChosen() {
    const name = visible(chosen()?.name ?? "");
    byId("used-glossary").textContent = name && told("used_glossary", { name });
    byId("delete-glossary").hidden = !name;
    byId("delete-glossary").setAttribute("aria-label", told("delete_glossary", { name }));
  }

  async function list(wanted) {
    known = (await ask("GET", "v1/glossaries")).glossaries;
    show(wanted);
  }

  async function send(file) {
    const [direction, ...others] = directionsOf(page.domain());
    if (!direction || others.length) throw new Refused(0, told("glossary_direction"));
    const name = file.name.slice(-200);
    const asked = new URLSearchParams({ name, source_language: direction.source, target_language: direction.target });
    const made = await ask("POST", `v1/glossaries?${asked}`, { body: file, kind: BYTES });
    await list(made.id);
    const values = { name: visible(made.name), count: count(made.dictionaries[0].terms), left_out: count(made.left_out) };
    page.speak(told(made.left_out ? "glossary_left_out" : "glossary_sent", values));
  }

  // Something that may fail, with its problem shown.
  async function attempt(work) {
    page.succeed();
    try {
      await work();
    } catch (error) {
      page.fail(error);
    }
  }

  choice.addEventListener("change", showChosen);
  field.addEventListener("change", async () => {
    const [file] = field.files;
    if (!file) return;
    await attempt(() => send(file));
    field.value = "";
  });
  byId("delete-glossary").addEventListener("click", () =>
    attempt(async () => {
      const { id, name } = chosen();
      await remove(`v1/glossaries/${id}`);
      await list("");
      choice.focus();
      page.speak(told("glossary_deleted", { name: visible(name) }));
    }),
  );

  // What requests say of the glossary.
  const asked = () => ({ glossary: typed(), ...(choice.value && { glossary_id: choice.value }) });
  return { asked, list, show };
}

function directionsOf(domain) {
  if (!domain) return [];
  return domain.directions ?? [{ source: domain.source_language, target: domain.target_language }];
}

const primary = (tag) => (tag ?? "").toLowerCase().split(/[-_]/)[0];
const isOf = ({ source_language, target_language }, { source, target }) => primary(source) === source_language && primary(target) === target_language;

function typed() {
  const found = [];
  byId("glossary").value.split("\n").forEach((line, number) => {
    if (!line.trim()) return;
    const at = line.indexOf("=");
    const [source, target] = [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    if (at < 0 || !source || !target) throw new Refused(0, told("glossary_line", { line: number + 1 }));
    found.push({ source, target });
  });
  return found;
}
