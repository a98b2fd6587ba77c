// The page: a text and a domain in, translations out.
import { byId } from "./elements.js";
import { listenForFiles } from "./files.js";
import { listenForGlossaries } from "./glossary.js";
import { Sentences } from "./sentences.js";
import { listenForMemory } from "./memory.js";
import { ask, keepKey, ownDomain, Refused } from "./service.js";
import { listSettings, settingsInBody, settingsInQuery, showSettings } from "./settings.js";
import { count, firstLanguage, told, useLanguage } from "./strings.js";

const speak = (text) => (byId("status").textContent = text);
const sentences = new Sentences(byId("sentences"), speak, fail, (isBusy) => (byId("stop").hidden = !isBusy));
let domains = [];

function fail(error) {
  byId("problem").textContent = error.message;
  byId("problem").hidden = false;
  if (error.status === 401) askForKey();
  if (!(error instanceof Refused)) throw error;
}

function askForKey() {
  byId("access").hidden = false;
  byId("key").focus();
}

const succeed = () => (byId("problem").hidden = true);

async function listDomains(wanted) {
  const before = wanted ?? byId("domain").value;
  domains = (await ask("GET", "v1/domains")).domains;
  const chosen = [before, ownDomain].find((name) => domains.some((each) => each.name === name));
  const first = chosen ?? (domains.find((each) => each.default) ?? domains[0])?.name;
  byId("domain").replaceChildren(...domains.map((each) => new Option(each.name, each.name, false, each.name === first)));
  byId("names").replaceChildren(...domains.filter((each) => each.memory).map((each) => new Option(each.name, each.name)));
  for (const each of domains)
    each.learnt = (stored) => {
      for (const now of domains) if (now.name === each.name) now.segments = stored.segments;
      showFacts();
      memory.refresh();
    };
  showFacts();
}

// A domain that a file has made is chosen only while there is nothing that somebody works on.
async function welcome(name) {
  if (byId("text").value.trim() || !byId("results").hidden) return listDomains();
  await listDomains(name);
  memory.clear();
}

function choose(name) {
  byId("domain").value = name;
  showChosen();
}

// What is shown is always that of the chosen domain.
function showChosen() {
  showFacts();
  memory.clear();
  if (!byId("results").hidden) byId("asking").requestSubmit();
}

// With the directions that it may translate in; where there are several and none is chosen, the text decides.
function chosenDomain() {
  const domain = domains.find((each) => each.name === byId("domain").value);
  const several = domains.find((each) => each.directions?.length > 1)?.directions;
  if (!domain || !several) return domain;
  const own = [{ source: domain.source_language, target: domain.target_language }];
  const chosen = several[byId("direction").value];
  return { ...domain, directions: domain.memory ? own : chosen ? [chosen] : several };
}

const inWords = ({ source, target }) => [source, target].filter(Boolean).join(" → ");

function showDirections({ directions }) {
  byId("directions").hidden = !(directions?.length > 1);
  const before = byId("direction").value;
  const named = (directions ?? []).map((each, number) => new Option(inWords(each), number));
  byId("direction").replaceChildren(new Option(told("direction_by_text"), ""), ...named);
  byId("direction").value = before in named ? before : "";
}

function showFacts() {
  const domain = domains.find((each) => each.name === byId("domain").value);
  if (!domain) return;
  showDirections(domain);
  const languages = inWords({ source: domain.source_language, target: domain.target_language });
  const size = domain.segments === 1 ? told("domain_segment") : told("domain_segments", { count: count(domain.segments ?? 0) });
  const facts = domain.memory ? size : told("domain_alone");
  byId("domain-facts").textContent = [languages, facts].filter(Boolean).join(" · ");
  byId("text").lang = domain.source_language ?? "";
  glossaries.show();
  byId("memory").hidden = !domain.memory;
}

// After a change of a memory, the text is translated again.
async function changed(domain, stored) {
  domain.learnt(stored);
  if (!byId("results").hidden) await sentences.again(domain);
}

async function translate(event) {
  event.preventDefault();
  succeed();
  const domain = chosenDomain();
  const text = byId("text").value;
  if (!text.trim() || !domain) return speak(told("nothing"));
  byId("results").hidden = false;
  try {
    await sentences.translate(text, domain, { ...glossaries.asked(), ...settingsInBody() });
  } catch (error) {
    fail(error);
  }
}

async function copy() {
  try {
    await navigator.clipboard.writeText(sentences.text);
    speak(told("copied"));
  } catch {
    speak(told("not_copied"));
  }
}

async function start() {
  try {
    await listDomains();
    await glossaries.list();
    await listSettings();
    const here = document.activeElement;
    const isTouched = matchMedia("(pointer: coarse)").matches; // where a field that has the focus brings up a keyboard
    if (byId("access").contains(here) || (here === document.body && !isTouched)) byId("text").focus();
    byId("access").hidden = true;
    succeed();
    if (ownDomain !== null && !domains.some((each) => each.name === ownDomain))
      fail(new Refused(404, told("unknown_domain", { domain: ownDomain })));
  } catch (error) {
    fail(error);
  }
}

useLanguage(firstLanguage());
byId("language").value = document.documentElement.lang;
byId("language").addEventListener("change", (event) => {
  useLanguage(event.target.value);
  speak("");
  showFacts();
  showSettings();
  sentences.showAgain();
  memory.refresh();
});
byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value.trim());
  byId("key").value = "";
  start();
});
byId("domain").addEventListener("change", showChosen);
byId("direction").addEventListener("change", showChosen);
byId("asking").addEventListener("submit", translate);
byId("asking").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    byId("asking").requestSubmit();
  }
});
byId("stop").addEventListener("click", () => {
  sentences.stop();
  speak(told("stopped"));
});
byId("copy").addEventListener("click", copy);
const glossaries = listenForGlossaries({ domain: chosenDomain, speak, fail, succeed });
const memory = listenForMemory({ domain: chosenDomain, speak, fail, succeed, changed });
listenForFiles({ domain: chosenDomain, glossary: glossaries.asked, settings: settingsInQuery, speak, welcome, choose, fail, succeed });
start();
