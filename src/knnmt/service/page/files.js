// Files: documents that come back translated, and memories that become domains; each shows how far it is.
import { byId, make } from "./elements.js";
import { ask, download, Refused } from "./service.js";
import { count, told, visible } from "./strings.js";
import { faults, fetchUnits, unitsView } from "./units.js";

const PAUSE = 700; // milliseconds between two questions
const BYTES = "application/octet-stream";
const languagesOf = ({ directions: [direction, ...others] = [] }) =>
  direction && !others.length ? { source_language: direction.source ?? "", target_language: direction.target ?? "" } : {};
const pause = () => new Promise((go) => setTimeout(go, PAUSE));

// page: its domain(), glossary(), settings(), speak(), welcome(), choose(), fail() and succeed()
export function listenForFiles(page) {
  const form = byId("sending");
  const field = byId("file");
  const purpose = () => new FormData(form).get("purpose");
  form.addEventListener("change", () => {
    byId("naming").hidden = purpose() !== "memory";
    suggestName();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      send([...field.files]);
      field.value = "";
    } catch (error) {
      page.fail(error);
    }
  });

  // Files may be dropped anywhere; else the browser would open one in place of the page.
  const drop = byId("drop");
  const over = (event, isOver) => {
    if (!event.dataTransfer.types.includes("Files")) return; // text that is dragged into a field
    event.preventDefault();
    drop.classList.toggle("over", isOver);
  };
  document.addEventListener("dragover", (event) => over(event, true));
  document.addEventListener("dragleave", (event) => over(event, event.relatedTarget !== null));
  document.addEventListener("drop", (event) => {
    over(event, false);
    if (!event.dataTransfer.files.length) return;
    field.files = event.dataTransfer.files;
    suggestName();
    drop.scrollIntoView({ block: "nearest" });
    field.focus();
  });

  // A domain is named after its first file, until somebody names it.
  let suggested = "";
  function suggestName() {
    const [first] = field.files;
    if (!first || byId("name").value !== suggested) return;
    const letters = first.name.toLowerCase().replace(/\.[^.]*$/, "").normalize("NFKD").replaceAll(/\p{M}/gu, "");
    suggested = letters.replaceAll(/[^a-z0-9_]+/g, "-").replace(/^[_-]+|-+$/g, "").slice(0, 64);
    byId("name").value = suggested;
  }

  function send(files) {
    page.succeed();
    if (!files.length) throw new Refused(0, told("choose_file"));
    const name = byId("name").value.trim();
    if (purpose() === "document") {
      const domain = page.domain();
      const [glossary, settings] = [page.glossary(), page.settings()];
      files.forEach((file) => follow(file, () => sendDocument(file, domain, glossary, settings), documentDone));
    } else {
      if (!/^[a-z0-9][a-z0-9_-]{0,63}$/.test(name)) throw new Refused(0, told("choose_name"));
      // One after the other: the first makes the domain that the others are added to.
      files.reduce((before, file) => before.then(() => follow(file, () => sendMemory(file, name), memoryDone)), Promise.resolve());
    }
  }

  // A row that shows a file from the moment it is sent until it is done.
  async function follow(file, begin, finish) {
    const name = visible(file.name);
    const bar = make("progress", { "aria-label": told("progress_of", { name }) });
    const state = make("span", { class: "aside" }, told("sending"));
    const actions = make("span", { class: "row" });
    const row = make("li", {}, make("bdi", {}, name), bar, state, actions);
    byId("sent").prepend(row);
    try {
      let { path, job, cancel } = await begin();
      if (cancel) {
        const stop = () => ask("DELETE", path).catch(page.fail);
        actions.append(make("button", { type: "button", "aria-label": told("cancel_job", { name }), click: stop }, told("cancel")));
      }
      while (job.state === "waiting" || job.state === "running") {
        show(job, bar, state);
        await pause();
        job = await ask("GET", path);
      }
      bar.hidden = true;
      actions.replaceChildren();
      if (job.state === "cancelled") state.textContent = told("state_cancelled");
      else if (job.state === "failed") throw new Refused(0, job.message);
      else await finish({ name, job, path, row, state, actions });
    } catch (error) {
      bar.hidden = true;
      actions.replaceChildren();
      state.textContent = told("failed", { message: visible(error.message ?? "") });
      state.className = "failed";
      page.speak(`${name}: ${state.textContent}`);
      if (error.status === 401) page.fail(error);
    }
  }

  function show(job, bar, state) {
    if (job.of) {
      bar.max = job.of;
      bar.value = job.done;
    }
    if (job.state === "waiting") state.textContent = told("state_waiting");
    else if (["tuning", "publishing", "indexing"].includes(job.stage)) state.textContent = told(`stage_${job.stage}`);
    else if (job.of) state.textContent = told("state_running_of", { done: count(job.done), of: count(job.of) });
    else state.textContent = told("state_running", { done: count(job.done) });
  }

  async function sendDocument(file, domain, { glossary, ...others }, settings) {
    const asked = new URLSearchParams({ name: file.name.slice(-200), domain: domain.name, ...languagesOf(domain), ...others });
    for (const { source, target } of glossary) asked.append("term", `${source}=${target}`);
    for (const [name, value] of settings) asked.append(name, value);
    const job = await ask("POST", `v1/documents?${asked}`, { body: file, kind: BYTES });
    return { path: `v1/documents/${job.id}`, job };
  }

  async function sendMemory(file, domain) {
    const asked = new URLSearchParams({ name: file.name.replaceAll(/[/\\]/g, "_").slice(-200) });
    const job = await ask("POST", `v1/domains/${domain}/memories?${asked}`, { body: file, kind: BYTES });
    return { path: `v1/jobs/${job.id}`, job, cancel: true };
  }

  async function documentDone({ name, job, path, row, state, actions }) {
    const found = await fetchUnits(path);
    const content = await download(`${path}/content`); // the service then deletes the document with its units
    const given = job.download_name ?? name;
    const link = make("a", { download: given, href: URL.createObjectURL(content) }, told("download", { name: visible(given) }));
    state.textContent = faults(found);
    actions.append(link);
    if (found.units.length) {
      const { button, view } = unitsView(name, found);
      actions.append(button);
      row.append(view);
    }
    page.speak(`${told("document_done", { name })} ${state.textContent}`.trim());
  }

  async function memoryDone({ name, job, state, actions }) {
    const worse = (job.summary ?? []).some((line) => /^(worse|unrelated) /.test(line));
    state.textContent = told(worse ? "memory_worse" : "memory_done", { domain: job.domain });
    if (worse) state.className = "failed";
    actions.append(make("button", { type: "button", click: () => page.choose(job.domain) }, told("use_domain", { domain: job.domain })));
    page.speak(`${name} ${state.textContent}`);
    await page.welcome(job.domain);
  }
}
