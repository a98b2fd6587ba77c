"""Translates the strings that Wagtail's newer releases added, in both directions, without and with an older release.

That is what a translator of a program has: the catalogs of the last release as memory, and the strings of the next one
as work. `python examples/demo.py [DIRECTORY]` keeps its downloads and stores in DIRECTORY, by default .demo.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import knnmt
from knnmt import FilterConfig, SegmentPair, Translation, Translator

# A content management system under the BSD licence; its German catalogs are only read, nothing is run.
BEFORE, AFTER = "wagtail==5.2.8", "wagtail==7.4.4"
DIRECTIONS = {"en-de": "English to German", "de-en": "German to English"}
OWN_MEMORY = Path(__file__).parent / "memory.tsv"
OWN_PLACE = Path(".demo")
HELD_OUT = 0.1  # of our own memory, which has no releases
SHOWN = 3
WORD = "▁"  # marks a token that begins a word


def fetch_catalogs(place: Path, package: str) -> list[Path]:
    """The German message catalogs of a package; none if they cannot be fetched."""
    name, _, version = package.partition("==")
    wheels, catalogs = place / "wheels", place / "catalogs" / f"{name}-{version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--only-binary=:all:", "--retries=1", "--timeout=20", f"--dest={wheels}", package]
    if not any(wheels.glob(f"{name}-{version}-*.whl")) and subprocess.run(pip, capture_output=True).returncode:
        return []
    (wheel,) = wheels.glob(f"{name}-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/locale/de/" in name and name.endswith(".po")]
        return [Path(archive.extract(name, catalogs)) for name in names]


def read(files: list[Path], folder: Path) -> list[SegmentPair]:
    """Pairs from German to English, each once, with origins below `folder`."""
    pairs = knnmt.read_memories(files, filters=FilterConfig(duplicates=False))
    return [replace(pair, origin=pair.origin.removeprefix(f"{folder}{os.sep}")) for pair in pairs]


def memory_and_work(place: Path) -> tuple[str, list[SegmentPair], list[SegmentPair]]:
    """What the memory is, its pairs, and the pairs to translate."""
    print(f"Fetching the German message catalogs of {BEFORE} and {AFTER} ...")
    if (before := fetch_catalogs(place, BEFORE)) and (after := fetch_catalogs(place, AFTER)):
        folder = place / "catalogs"
        return "wagtail", read(before, folder), read(after, folder)
    print("The package index cannot be reached: a small memory of our own, for a made-up product, serves instead.")
    work, memory = knnmt.divide(read([OWN_MEMORY], OWN_MEMORY.parent), HELD_OUT)  # by a hash of the German text
    return "own", memory, work


def show_evidence(translations: list[Translation]) -> None:
    """Show the evidence for the token that the memory raised most, among shown tokens that begin a word."""
    tokens = [(token, token.evidence, each) for each in translations for token in each.tokens]
    beginnings = [
        (token, why, each) for token, why, each in tokens if why and token.text[:1] == WORD and token.text[1:].isalpha()
    ]
    token, why, translation = max(beginnings, key=lambda found: found[1].probability - found[1].model_probability)
    print(f"\nWhy {token.text.strip(WORD)!r} in {translation.text!r}?")
    print(f"  {why} The memory's nearest entries:")
    for near in why.neighbours[:3]:
        start, end = near.span
        target = f"{near.pair.target[:start][-40:]}«{near.pair.target[start:end]}»{near.pair.target[end:]}"
        print(f"  {near.weight:>5.1%}  {short(target)}")
        print(f"         for {short(near.pair.source)!r}, {near.pair.origin}")


def short(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def demonstrate(direction: str, store: Path, memory: list[SegmentPair], work: list[SegmentPair]) -> str:
    """Adapt in one direction and show what that does; returns a text that the memory changes."""
    print(f"\n{DIRECTIONS[direction]}: adapting to {len(memory):,} pairs, as `knnmt adapt --model {direction}` does:")
    if direction == "en-de":
        memory, work = (
            [replace(pair, source=pair.target, target=pair.source) for pair in pairs] for pairs in (memory, work)
        )
    shutil.rmtree(store, ignore_errors=True)
    translator = Translator(direction)
    made = knnmt.adapt(memory, store, sample=0, model=translator, on_message=lambda line: print(f"  {line}"))

    new = knnmt.unseen(made.store, work)
    print(f"\nTranslating {len(new):,} strings of which the memory holds neither side ({len(work):,} in all):")
    alone, adapted = knnmt.evaluate(new, store, model=translator).systems
    for name, system in (("the model alone", alone), ("with the memory", adapted)):
        bleu, chrf = system.scores.bleu, system.scores.chrf
        print(f"  {name}   BLEU {bleu.value:.1f} ± {bleu.interval:.1f}   chrF {chrf.value:.1f} ± {chrf.interval:.1f}")

    translations = zip(new, alone.run.hypotheses, adapted.run.hypotheses, strict=True)
    different = [each for each in translations if each[1] != each[2]]
    some = different[:: max(1, len(different) // SHOWN)][:SHOWN]
    print(f"\n{len(different):,} translations are different. {len(some)} of them:")
    for pair, before, after in some:
        print(f"  {short(pair.source)}")
        for name, text in {"alone": before, "adapted": after, "reference": pair.target}.items():
            print(f"    {name:<10} {short(text)}")
    show_evidence(translator.translate([pair.source for pair, _, _ in some], datastore=store, evidence=True))
    return some[0][0].source


def main() -> None:
    """Run the demo."""
    started = time.perf_counter()
    place = Path(sys.argv[1]) if sys.argv[1:] else OWN_PLACE
    name, memory, work = memory_and_work(place)
    stores = {direction: place / f"{name}-{direction}.store" for direction in DIRECTIONS}
    texts = {direction: demonstrate(direction, store, memory, work) for direction, store in stores.items()}

    command = os.path.relpath(Path(sys.executable).with_name("knnmt"))
    print(f"\nAll that took {time.perf_counter() - started:.0f} s. Next:")
    for direction, store in stores.items():
        print(f"  {command} explain -d {store} {shlex.quote(texts[direction])}")
    text = texts[direction]
    print(f"  echo {shlex.quote(text)} | {command} translate -d {store} --match --jsonl")
    print(f"  {command} inspect {store}")
    print(f"  {command} adapt YOUR-MEMORY.tmx -o your.store --model {direction}     (or XLIFF, PO, TSV, CSV)")
    serve = f"{command} serve --store {store.stem}={store}"
    print(f"  {f'make serve DIRECTION={direction}' if place == OWN_PLACE else serve}", end="     ")
    print("(a page to try it all, at http://127.0.0.1:8500)")


if __name__ == "__main__":
    main()
