// The memory of the chosen domain: searched for words, and its corrections, which can be undone.
import { byId, make, written } from "./elements.js";
import { ask } from "./service.js";
import { count, moment, told, visible } from "./strings.js";

// page: its domain(), speak(), fail(), succeed() and changed(), which is called with the answer of a change
export function listenForMemory(page) {
  const list = byId("found");
  let listing; // makes what is shown
  let request;

  async function show(wanted) {
    listing = wanted;
    page.succeed();
    await refresh();
    page.speak(byId("found-title").textContent);
  }

  // A list that comes later than a newer one was requested is not shown.
  async function refresh() {
    const current = (request = Symbol("of a list"));
    try {
      const { title, items } = listing ? await listing(page.domain()) : { title: "", items: [] };
      if (request !== current) return;
      byId("found-title").textContent = title;
      list.replaceChildren(...items);
    } catch (error) {
      if (request === current) page.fail(error);
    }
  }

  async function search(domain, words) {
    const where = new URLSearchParams({ words });
    const { segments } = await ask("GET", `${of(domain)}/concordance?${where}`);
    const title = segments.length === 1 ? told("domain_segment") : told("domain_segments", { count: count(segments.length) });
    return { title, items: segments.map((segment) => make("li", {}, ...pair(segment, domain, words.split(/\s+/)))) };
  }

  async function listCorrections(domain) {
    const { corrections } = await ask("GET", `${of(domain)}/corrections`);
    const title = told(corrections.length ? "learnt_corrections" : "no_corrections", { count: count(corrections.length) });
    return { title, items: corrections.map((correction) => item(correction, domain)) };
  }

  function item(correction, domain) {
    const [first] = correction.segments;
    const before = correction.replaced.map((old) => make("p", { class: "aside", ...written(domain.target_language) }, make("s", {}, visible(old.target))));
    const undo = make("button", { type: "button", "aria-label": told("undo_of", { source: visible(first.source) }) }, told("undo"));
    undo.addEventListener("click", async () => {
      undo.disabled = true;
      page.succeed();
      try {
        const stored = await ask("DELETE", `${of(domain)}/corrections/${correction.id}`);
        await page.changed(domain, stored);
        page.speak(told("undone", { source: visible(first.source) }));
        byId("corrections").focus();
      } catch (error) {
        undo.disabled = false;
        page.fail(error);
      }
    });
    const when = make("small", {}, moment(correction.created));
    return make("li", {}, ...pair(first, domain, []), ...before, make("p", { class: "row" }, when, undo));
  }

  byId("searching").addEventListener("submit", (event) => {
    event.preventDefault();
    const words = byId("words").value.trim();
    if (words) show((domain) => search(domain, words));
    else page.speak(told("no_words"));
  });
  byId("corrections").addEventListener("click", () => show(listCorrections));
  // Nothing is shown of a domain that is no longer chosen.
  function clear() {
    listing = undefined;
    refresh();
  }
  return { clear, refresh };
}

const of = (domain) => `v1/domains/${encodeURIComponent(domain.name)}`;

// A segment, with the words that were searched for marked.
function pair(segment, domain, words) {
  return [
    make("p", written(domain.source_language), ...marked(segment.source, words)),
    make("p", written(domain.target_language), ...marked(segment.target, words)),
    make("small", {}, make("bdi", {}, visible(segment.origin))),
  ];
}

function marked(text, words) {
  if (!words.length) return [visible(text)];
  const choices = words.map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|");
  return text.split(new RegExp(`(${choices})`, "iu")).map((piece, number) => (number % 2 ? make("mark", {}, visible(piece)) : visible(piece)));
}
