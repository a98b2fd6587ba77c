// The sentences of a text: each is translated with the memory and without, corrected, learnt, and compared with matches.
import { changes, make, written } from "./elements.js";
import { ask, lines, Refused } from "./service.js";
import { count, percent, told, visible } from "./strings.js";
import { showWords } from "./words.js";

const TOGETHER = 500; // sentences of a request
const LEAST_ALIKE = 50; // of a match, in percent

// What is shown, from the text to its sentences.
// speak: says something in the live region; fail: shows a problem; busy: is told whether something is under way
export class Sentences {
  constructor(list, speak, fail, busy) {
    this._list = list;
    this._speak = speak;
    this._fail = fail;
    this._busy = busy;
    this._rows = [];
    this._running = null;
  }

  // Translate a text in a domain; what was under way is given up. Rows of the same sentences stay, to show what changed.
  // more: what requests say of the glossary and of settings; isLearnt: because of what was learnt
  async translate(text, domain, more, isLearnt = false) {
    this.stop();
    const running = (this._running = new AbortController());
    this._busy(true);
    try {
      const { sentences, language } = await ask("POST", "v1/sentences", { body: { text }, signal: running.signal });
      if (running.signal.aborted) return;
      this._asked = { text, domain, more };
      const directed = inDirection(domain, language);
      this._keep(sentences, directed);
      const rows = this._rows.filter((row) => row.sentence);
      await this._decode(rows, directed, more, isLearnt, running.signal);
    } catch (error) {
      if (error.name !== "AbortError") this._fail(error);
    } finally {
      if (this._running === running) {
        this._running = null;
        this._busy(false);
      }
    }
  }

  stop() {
    this._running?.abort();
  }

  get text() {
    return this._rows.map((row) => (row.sentence ? (row.made?.text ?? "") : "") + row.space).join("");
  }

  // In another language of the page.
  showAgain() {
    for (const row of this._rows) row.showAgain();
  }

  _keep(pieces, domain) {
    const shownFor = `${domain.name} ${domain.source_language}`;
    const kept = this._shownFor === shownFor ? [...this._rows] : [];
    this._shownFor = shownFor;
    this._rows = pieces.map((piece) => {
      const sentence = piece.trim();
      const at = kept.findIndex((row) => row.sentence === sentence);
      const row = at < 0 ? new Sentence(sentence, domain, this) : kept.splice(at, 1)[0];
      row.space = piece.slice(piece.trimEnd().length);
      return row;
    });
    const shown = this._rows.filter((row) => row.sentence).map((row) => row.element);
    const isNew = shown.length !== this._list.children.length || shown.some((each, at) => each !== this._list.children[at]);
    if (isNew) this._list.replaceChildren(...shown); // which would take the focus from what is in it
  }

  async _decode(rows, domain, more, isLearnt, signal) {
    if (!rows.length) return this._speak(told("nothing"));
    let done = 0;
    const progress = () => {
      done++;
      if (done < rows.length) this._speak(told("translating", { done: count(done), count: count(rows.length) }));
      else this._speak(rows.length === 1 ? told("translated_one") : told("translated", { count: count(rows.length) }));
    };
    const languages = { source_language: domain.source_language, target_language: domain.target_language };
    const asked = { ...(domain.directions ? languages : {}), ...more, evidence: domain.memory, match: domain.memory };
    const work = [
      this._stream(rows, { ...asked, domain: domain.name }, signal, (row, made) => {
        if (made.so_far !== undefined) return row.grow(made.so_far);
        row.show(made, isLearnt);
        progress();
      }),
    ];
    const alone = (row, made) => (made.so_far === undefined ? row.showAlone(made) : row.growAlone(made.so_far));
    if (domain.memory) work.push(this._stream(rows, { ...languages, ...more, domain: "base" }, signal, alone));
    await Promise.all(work);
  }

  async _stream(rows, asked, signal, show) {
    for (let first = 0; first < rows.length; first += TOGETHER) {
      const some = rows.slice(first, first + TOGETHER);
      const body = { ...asked, texts: some.map((row) => row.sentence), stream: true, so_far: true };
      let left = some.length;
      for await (const line of lines("v1/translate", { body, signal })) {
        if (line.index === undefined) throw new Refused(0, line.message);
        show(some[line.index], line);
        if (line.so_far === undefined) left--;
      }
      if (left) throw new Refused(0, told("cut_short"));
    }
  }

  async learn(row, target) {
    const { text, domain, more } = this._asked;
    this._speak(told("learning"));
    const body = { segments: [{ source: row.sentence, target }] };
    const stored = await ask("PUT", `v1/domains/${encodeURIComponent(domain.name)}/segments`, { body });
    this._speak(told("learnt", { domain: domain.name, count: count(stored.segments) }));
    domain.learnt(stored);
    await this.translate(text, domain, more, true);
  }

  // After the memory of a domain has changed.
  async again({ name }) {
    if (this._asked?.domain.name === name) await this.translate(this._asked.text, this._asked.domain, this._asked.more, true);
  }
}

// The domain with the languages that a text is translated between, by the language that it looks like.
function inDirection(domain, language) {
  const [first, ...others] = domain.directions ?? [];
  if (!first) return domain;
  const direction = others.length ? domain.directions.find((each) => each.source === language) : first;
  if (!direction) throw new Refused(0, told("which_language"));
  return { ...domain, source_language: direction.source, target_language: direction.target };
}

let numbered = 0;

class Sentence {
  constructor(sentence, domain, all) {
    this.sentence = sentence;
    this.space = "";
    this.made = null;
    this._alone = null;
    this._followed = false;
    this._domain = domain;
    this._all = all;
    this._key = `sentence-${++numbered}`;
    this.element = make("li", { class: "sentence" });
    this._build();
  }

  show(made, isLearnt) {
    this._followed = isLearnt && this.made !== null && this.made.text !== made.text;
    this.made = made;
    this._fill();
    if (!this._matches.hidden) this._listMatches(); // what was learnt may be among them
  }

  // What is decoded so far, where nothing is shown yet: what stands there stays until it changes.
  grow(soFar) {
    if (!this.made) this._words.replaceChildren(growing(soFar));
  }

  growAlone(soFar) {
    if (!this._alone) this._other.replaceChildren(growing(soFar));
  }

  showAlone(made) {
    this._alone = made;
    this._fillAlone();
  }

  showAgain() {
    this._build();
    if (this.made) this._fill();
    if (this._alone) this._fillAlone();
  }

  _build() {
    const { source_language: source, target_language: target, memory } = this._domain;
    const key = this._key;
    const part = (tag, attributes, ...children) => make(tag, attributes, ...children);
    this._words = part("div", { class: "words", role: "group", "aria-label": told("word_by_word"), ...written(target) }, told("waiting"));
    this._about = part("p", { class: "aside about-it" });
    this._panel = part("div", { class: "panel", id: `${key}-neighbours`, hidden: true });
    this._other = part("p", { class: "alone", ...written(target) }, told("waiting"));
    const sides = [part("div", { class: "side" }, part("h4", {}, told(memory ? "with_memory" : "without_memory")), this._words, this._about)];
    if (memory) sides.push(part("div", { class: "side" }, part("h4", {}, told("without_memory")), this._other));
    this._editor = part("div", { class: "editor", id: `${key}-editor`, hidden: true });
    this._matches = part("div", { class: "matches", id: `${key}-matches`, hidden: true });
    this._correct = this._opener("correct", this._editor, () => this._openEditor(this.made?.text ?? ""));
    this._compare = this._opener("matches", this._matches, () => this._openMatches());
    this.element.replaceChildren(
      part("h3", { class: "source", id: `${key}-source`, ...written(source) }, visible(this.sentence)),
      part("div", { class: memory ? "sides both" : "sides" }, ...sides),
      this._panel,
      ...(memory ? [part("div", { class: "row" }, this._correct, this._compare), this._editor, this._matches] : []),
    );
  }

  // A button that opens a part of the row and closes it.
  _opener(text, part, open) {
    const of = { "aria-controls": part.id, "aria-describedby": `${this._key}-source` }; // of which sentence
    const button = make("button", { type: "button", "aria-expanded": "false", ...of }, told(text));
    button.addEventListener("click", () => (part.hidden ? open() : this._close(button, part)));
    return button;
  }

  _open(button, part, ...content) {
    part.replaceChildren(...content);
    part.hidden = false;
    part.onkeydown = (event) => {
      if (event.key === "Escape") this._close(button, part);
    };
    button.setAttribute("aria-expanded", "true");
  }

  _close(button, part) {
    const isWithin = part.contains(document.activeElement);
    part.hidden = true;
    part.replaceChildren();
    button.setAttribute("aria-expanded", "false");
    if (isWithin) button.focus();
  }

  _fill() {
    const { made } = this;
    const { source_language: source, target_language: target, memory } = this._domain;
    this._panel.hidden = true;
    if (made.words?.length && !made.error) {
      showWords(this._words, this._panel, made, { source, target });
    } else {
      this._words.onkeydown = null;
      this._words.replaceChildren(make("span", { class: made.match && !made.error ? "taken" : "" }, visible(made.text)));
    }
    const about = [];
    if (made.error) about.push(make("span", { class: "failed" }, visible(made.error)));
    else if (made.kind) about.push(make("span", {}, told(`kind_${made.kind.replace(" ", "_")}`)));
    if (!made.error && made.match && !made.words?.length)
      about.push(make("span", {}, told("taken_over", { origin: visible(made.match.origin) })));
    if (memory && made.certainty !== undefined && made.kind !== "exact match")
      about.push(make("span", {}, told("certainty", { percent: percent(made.certainty / 100) })));
    if (this._followed) about.push(make("span", { class: "followed" }, told("followed")));
    for (const each of made.warnings ?? []) about.push(make("span", {}, visible(each.message)));
    this._about.replaceChildren(...about);
    if (this._alone) this._fillAlone();
  }

  _fillAlone() {
    const { error, text } = this._alone;
    if (error) return this._other.replaceChildren(make("span", { class: "failed" }, visible(error)));
    if (this.made && text === this.made.text)
      return this._other.replaceChildren(make("span", { class: "aside", lang: document.documentElement.lang }, told("same")));
    this._other.replaceChildren(...changes(text, this.made?.text ?? text));
  }

  _openEditor(text) {
    const id = `${this._key}-correction`;
    const field = make("textarea", { id, rows: "2", ...written(this._domain.target_language) });
    field.value = text;
    const problem = make("p", { class: "problem", role: "alert", hidden: true });
    const learn = make("button", { type: "submit", class: "main" }, told("learn"));
    const cancel = make("button", { type: "button", click: () => this._close(this._correct, this._editor) }, told("cancel"));
    const submit = async (event) => {
      event.preventDefault();
      problem.hidden = true;
      learn.disabled = true;
      try {
        if (!field.value.trim()) throw new Refused(0, told("write_something"));
        await this._all.learn(this, field.value.trim());
        this._close(this._correct, this._editor);
      } catch (error) {
        problem.textContent = error.message;
        problem.hidden = false;
        field.focus();
      } finally {
        learn.disabled = false;
      }
    };
    const form = make("form", { submit }, make("label", { for: id }, told("correction")), field, make("div", { class: "row" }, learn, cancel), problem);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this._open(this._correct, this._editor, form);
    field.focus();
  }

  _openMatches() {
    this._open(this._compare, this._matches, make("p", { class: "aside" }, told("waiting")));
    this._listMatches();
  }

  // The matches take the place of those that are shown, unless newer ones were requested meanwhile.
  async _listMatches() {
    const { name } = this._domain;
    const request = (this._matchRequest = Symbol("of matches"));
    let content;
    try {
      const body = { texts: [this.sentence], domain: name, at_least: LEAST_ALIKE };
      const [matches] = (await ask("POST", "v1/match", { body })).matches;
      content = matches.length
        ? make("ol", { class: "near same" }, ...matches.map((match) => this._match(match)))
        : make("p", { class: "aside" }, told("no_matches"));
    } catch (error) {
      content = make("p", { class: "problem", role: "alert" }, error.message);
    }
    if (this._matches.hidden || this._matchRequest !== request) return;
    if (this._matches.contains(document.activeElement)) this._compare.focus();
    this._matches.replaceChildren(content);
  }

  _match(match) {
    const { source_language: source, target_language: target } = this._domain;
    const use = make("button", { type: "button", click: () => this._openEditor(match.target) }, told("use_match"));
    return make(
      "li",
      {},
      make("b", { "--share": match.score / 100 }, percent(match.score / 100)),
      make(
        "div",
        {},
        make("p", written(source), ...changes(match.source, this.sentence)),
        make("p", written(target), visible(match.target)),
        make("small", {}, make("bdi", {}, visible(match.origin))),
        " ",
        use,
      ),
    );
  }
}

const growing = (soFar) => make("span", { class: "growing" }, `${visible(soFar)} ${told("waiting")}`);
