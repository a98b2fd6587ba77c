"""Adapts to real translations from the package index, and translates held-out strings without and with the store.

`python examples/demo.py [DIRECTORY]` keeps its downloads and stores in DIRECTORY, by default .demo.
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

PACKAGES = ["wagtail==7.4.4", "Django==5.2.19"]  # both under the BSD licence; catalogs are only read, nothing is run
OWN_MEMORY = Path(__file__).parent / "memory.tsv"
OWN_PLACE = Path(".demo")
HELD_OUT = 0.1
SHOWN = 6
WORD = "▁"  # marks a token that begins a word


def fetch_catalogs(place: Path) -> list[Path]:
    """The German message catalogs of the packages; none if they cannot be fetched."""
    wheels = place / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    pip += ["--only-binary=:all:", "--retries=1", "--timeout=20", f"--dest={wheels}", *PACKAGES]
    if len(list(wheels.glob("*.whl"))) < len(PACKAGES) and subprocess.run(pip, capture_output=True).returncode:
        return []
    catalogs = []
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if "/locale/de/" in name and name.endswith(".po")]
            catalogs += [Path(archive.extract(name, place / "catalogs")) for name in names]
    return catalogs


def read(files: list[Path], folder: Path) -> list[SegmentPair]:
    """Pairs from German to English, each once, with origins below `folder`."""
    pairs = knnmt.read_memories(files, filters=FilterConfig(duplicates=False))
    return [replace(pair, origin=pair.origin.removeprefix(f"{folder}{os.sep}")) for pair in pairs]


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


def main() -> None:
    """Run the demo."""
    started = time.perf_counter()
    place = Path(sys.argv[1]) if sys.argv[1:] else OWN_PLACE
    print(f"Fetching the German message catalogs of {' and '.join(PACKAGES)} ...")
    if catalogs := fetch_catalogs(place):
        pairs, store = read(catalogs, place / "catalogs"), place / "software.store"
    else:
        print("The package index cannot be reached: a small memory of our own, for a made-up product, serves instead.")
        pairs, store = read([OWN_MEMORY], OWN_MEMORY.parent), place / "own.store"
    held_out, memory = knnmt.divide(pairs, HELD_OUT)  # by a hash of the German text, before anything else
    print(f"{len(pairs):,} different pairs. {len(held_out):,}, chosen by a hash, are kept for the end.\n")

    print(f"Adapting to the other {len(memory):,}, as `knnmt adapt` does:")
    shutil.rmtree(store, ignore_errors=True)
    translator = Translator()
    made = knnmt.adapt(memory, store, sample=0, model=translator, tell=lambda line: print(f"  {line}"))

    test = knnmt.unseen(made.store, held_out)
    known = len(held_out) - len(test)
    print(
        f"\nTranslating {len(test):,} of those kept. {known:,} are not scored: the memory holds their source or target."
    )
    alone, adapted = knnmt.evaluate(test, store, model=translator).systems
    for name, system in (("the model alone", alone), ("with the memory", adapted)):
        bleu, chrf = system.scores.bleu, system.scores.chrf
        print(f"  {name}   BLEU {bleu.value:.1f} ± {bleu.interval:.1f}   chrF {chrf.value:.1f} ± {chrf.interval:.1f}")

    translations = zip(test, alone.run.hypotheses, adapted.run.hypotheses, strict=True)
    different = [each for each in translations if each[1] != each[2]]
    some = different[:: max(1, len(different) // SHOWN)][:SHOWN]
    print(f"\n{len(different):,} translations are different. {len(some)} of them:")
    for pair, before, after in some:
        print(f"  {short(pair.source)}")
        for name, text in {"alone": before, "adapted": after, "reference": pair.target}.items():
            print(f"    {name:<10} {short(text)}")
    shown = [pair.source for pair, _, _ in some]
    show_evidence(translator.translate(shown, datastore=store, evidence=True))

    command = os.path.relpath(Path(sys.executable).with_name("knnmt"))
    print(f"\nAll that took {time.perf_counter() - started:.0f} s. Next:")
    print(f"  {command} explain -d {store} {shlex.quote(shown[0])}")
    print(f"  echo {shlex.quote(shown[0])} | {command} translate -d {store} --match --jsonl")
    print(f"  {command} inspect {store}")
    print(f"  {command} adapt YOUR-MEMORY.tmx -o your.store     (or XLIFF, PO, TSV, CSV)")
    serve = "make serve" if place == OWN_PLACE else f"{command} serve --store {store.stem}={store}"
    print(f"  {serve}     (a page to try it all, at http://127.0.0.1:8500)")


if __name__ == "__main__":
    main()
