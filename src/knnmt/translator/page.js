// Words open their panels: one at a time in a segment, by pointer or keyboard. Without this script the panels are a list.
document.documentElement.classList.add("js");

// Neighbours name their segment by a number: an open panel shows its source and its origin instead.
const fill = (panel) => {
  for (const link of panel.querySelectorAll(".near a:not(.filled)")) {
    const [, source, origin] = document.getElementById(link.hash.slice(1)).children;
    link.parentElement.before(source.cloneNode(true));
    link.replaceChildren(origin.firstElementChild.cloneNode(true));
    link.classList.add("filled");
  }
};

for (const segment of document.querySelectorAll(".segment")) {
  const words = [...segment.querySelectorAll(".word")];
  const panels = words.map((word) => document.getElementById(word.getAttribute("aria-controls")));
  const show = (chosen) => panels.forEach((panel, number) => (panel.open = number === chosen));
  const move = (to) => {
    words.forEach((word, number) => (word.tabIndex = number === to ? 0 : -1)); // one stop for the tab key
    words[to].focus();
    if (panels.some((panel) => panel.open)) show(to);
  };
  words.forEach((word, number) => {
    word.tabIndex = number ? -1 : 0;
    word.addEventListener("click", () => {
      const opens = !panels[number].open;
      show(-1);
      move(number);
      panels[number].open = opens;
    });
    panels[number].addEventListener("toggle", () => {
      if (panels[number].open) fill(panels[number]);
      word.setAttribute("aria-expanded", panels[number].open);
      const here = document.activeElement;
      if (!panels[number].open && (here === document.body || panels[number].contains(here))) move(number); // closed from within
    });
  });
  segment.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const open = panels.findIndex((panel) => panel.open);
    if (event.key === "Escape" && open >= 0) {
      show(-1);
      move(open);
      return;
    }
    const here = words.indexOf(document.activeElement);
    if (here < 0) return;
    const on = getComputedStyle(words[here].parentElement).direction === "rtl" ? -1 : 1;
    const steps = { ArrowRight: here + on, ArrowLeft: here - on, Home: 0, End: words.length - 1 };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(Math.min(Math.max(to, 0), words.length - 1));
  });
}
