"""Counts faults in translations of the files of more than thirty packages, by class.

    python benchmarks/packages.py DIRECTORY [--units 40] [--pairs 2000] [--code CHECKOUT]... [--examples 3]

Packages come from PyPI, npm and Debian in fixed versions; they are only read, nothing of them is run. Of each package
a document with the same number of units is made in its own format, half of the units with placeholders or other
unusual words, chosen by a hash. Catalogs with a source and a target (PO, Qt, XLIFF) are translated from English to
German, other files from the language that they are in. `knnmt translate` translates the documents twice, by the model
alone and with a memory: other messages of the PO catalogs. --code names a checkout whose `src` translates, instead of
this one; if it is given several times, the counts stand side by side. The counting code is always the same. DIRECTORY
keeps what was downloaded and translated: the same command counts again without translating.

The classes are the kinds of `knnmt translate --check`, signs of missing content, and `odd words`: words with signs,
digits or capitals inside, which must stay as they are. These are found without the table of placeholders, so that they
show what the table lacks; many are compounds and names that may change.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import polib
from lxml import etree

from knnmt.documents.checking import check_units
from knnmt.documents.document import State, Unit
from knnmt.documents.elements import plain
from knnmt.documents.opening import open_document
from knnmt.protection.content import content_faults
from knnmt_lab.scripts import argument_parser, print_header, print_row

HERE = Path(__file__).resolve().parents[1]
DEBIAN = "http://deb.debian.org/debian/pool/main"


@dataclass(frozen=True, slots=True)
class Package:
    """A package and its files.

    index: pypi, npm or debian
    version: for Debian, the path of the source archive
    members: the end of the names of its files
    kind: the name of the function that makes a document of them
    source: the language to translate from
    """

    index: str
    name: str
    version: str
    members: str
    kind: str
    source: str

    @property
    def target(self) -> str:
        return {"de": "en", "en": "de"}[self.source]

    @property
    def file_name(self) -> str:
        return re.sub(r"\W+", "-", self.name).strip("-").lower()


def _po(name: str, version: str, members: str = r"/locale/de/LC_MESSAGES/\w+\.po") -> Package:
    return Package("pypi", name, version, members, "po", "en")


def _json(name: str, version: str, members: str = r"/locales/de/[\w-]+\.json") -> Package:
    return Package("npm", name, version, members, "json", "de")


PACKAGES = (
    _po("wagtail", "8.0.1"),
    _po("Django", "6.1.3"),
    _po("django-oscar", "4.2.1"),
    _po("Sphinx", "9.2.0"),
    _po("plone.app.locales", "7.0.4", r"/locales/de/LC_MESSAGES/plone\.po"),
    _po("pretix", "2026.8.0"),
    _po("Flask-AppBuilder", "5.3.0", r"/translations/de/LC_MESSAGES/messages\.po"),
    _po("django-cms", "5.1.3"),
    _po("weblate", "2026.10.1"),
    _po("subdownloader", "2.1.0", r"/locale/de/subdownloader\.po"),
    _po("jupyterlab-language-pack-de-DE", "4.5.post3", r"/de_DE/LC_MESSAGES/jupyterlab\w*\.po"),
    _json("@node-red/editor-client", "5.0.7", r"/locales/de/(editor|infotips)\.json"),
    _json("@node-red/nodes", "5.0.7"),
    _json("@node-red/runtime", "5.0.7"),
    _json("node-red-dashboard", "3.6.6"),
    _json("@flowfuse/node-red-dashboard", "1.31.0"),
    _json("@docusaurus/theme-translations", "3.10.2"),
    _json("@theia/core", "1.75.0", r"/i18n/nls\.de\.json"),
    _json("@saltcorn/server", "1.6.2", r"/locales/de\.json"),
    _json("ep_etherpad-lite", "1.8.14", r"/locales/de\.json"),
    _json("iobroker.admin", "8.0.17", r"/admin/i18n/de\.json"),
    _json("primelocale", "2.5.0", r"package/de\.json"),
    Package("npm", "cordova-plugin-barcodescanner", "0.7.4", r"/values-de/strings\.xml", "android", "de"),
    Package("npm", "cordova-plugin-android-fingerprint-auth", "1.5.0", r"/values-de/[\w-]+\.xml", "android", "de"),
    Package("npm", "cordova-plugin-mfp", "8.0.2024082705", r"/values-de/[\w-]+\.xml", "android", "de"),
    Package("pypi", "labelme", "7.9.1", r"/translate/de_DE\.ts", "qt", "en"),
    Package("debian", "qbittorrent", "q/qbittorrent/qbittorrent_4.5.2.orig.tar.xz", r"_de\.ts", "qt", "en"),
    Package("debian", "keepassxc", "k/keepassxc/keepassxc_2.7.4+dfsg.1.orig.tar.xz", r"_de\.ts", "qt", "en"),
    Package("debian", "symfony", "s/symfony/symfony_5.4.23+dfsg.orig.tar.xz", r"\.de\.xlf", "xliff", "en"),
    Package("pypi", "cleanit", "0.5.1", r"/full-pipeline-en/input\.en\.srt", "subtitles", "en"),
    Package("npm", "srt", "0.0.3", r"/fixtures/testFile\.srt", "subtitles", "en"),
    Package("npm", "paella-core", "1.50.2", r"/captions\.de\.vtt", "subtitles", "de"),
    Package("npm", "video.js", "8.24.1", r"/captions\.en\.vtt", "subtitles", "en"),
    Package("npm", "subsrt", "1.1.1", r"/sample\.ass", "ass", "en"),
    Package("pypi", "pysubs2", "1.9.0", r"/ttml_example\w*\.ass", "ass", "en"),
)


# Files ----------------------------------------------------------------------------------------------------------------


def _fetched(address: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=300) as answer:
        content: bytes = answer.read()
        return content


def _address(package: Package) -> str:
    if package.index == "debian":
        return f"{DEBIAN}/{package.version}"
    if package.index == "npm":
        return f"https://registry.npmjs.org/{package.name}/-/{package.name.rpartition('/')[2]}-{package.version}.tgz"
    index = f"https://pypi.org/simple/{package.name}/"
    (found,) = re.findall(
        rf'href="([^"]*-{re.escape(package.version)}\.(?:tar\.gz|zip)[^"]*)"', _fetched(index).decode()
    )
    return urllib.parse.urljoin(index, str(found))


def files_of(package: Package, place: Path) -> list[Path]:
    """The files of a package, downloaded once."""
    directory = place / "downloads" / package.file_name
    if not directory.exists():
        archive = io.BytesIO(_fetched(_address(package)))
        wanted = re.compile(f".*{package.members}")
        found = [(name, content) for name, content in _members(archive) if wanted.fullmatch(name)]
        directory.mkdir(parents=True)
        for number, (name, content) in enumerate(sorted(found)):
            (directory / f"{number:02}-{Path(name).name}").write_bytes(content)
    return sorted(directory.iterdir())


def _members(archive: io.BytesIO) -> Iterator[tuple[str, bytes]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            yield from ((name, zipped.read(name)) for name in zipped.namelist())
        return
    archive.seek(0)
    with tarfile.open(fileobj=archive) as packed:
        for member in packed:
            if member.isfile() and (file := packed.extractfile(member)) is not None:
                yield member.name, file.read()


# Documents with some of the units -------------------------------------------------------------------------------------

_ODD = re.compile(
    r"""(?x) [^\s"'“”„‚‘’«»()]*
    (?: [{}\[\]<>$%@#=~^|\\/_&*+] | \w[.:]\w | \d | [a-z][A-Z] | [A-Z]{2}[^\W\d]* )
    [^\s"'“”„‚‘’«»()]*"""
)
_MARKS = ".,;:!?…·"


def odd_words(text: str) -> Counter[str]:
    """Words with signs, digits or capitals inside."""
    return Counter(each.strip(_MARKS) for each in _ODD.findall(text) if each.strip(_MARKS))


def _position(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def chosen(sources: list[str], count: int) -> set[str]:
    """Some of the sources, half of them with odd words if there are that many."""
    usable = sorted({each for each in sources if any(map(str.isalpha, each))}, key=_position)
    odd = [each for each in usable if odd_words(each)][: count // 2]
    return {*odd, *[each for each in usable if each not in odd][: count - len(odd)]}


def make_po(files: list[Path], count: int) -> str:
    entries = {entry.msgid: entry for file in files for entry in polib.pofile(str(file)) if not entry.obsolete}
    wanted = chosen(list(entries), count)
    made = polib.POFile()
    made.metadata = {
        "Content-Type": "text/plain; charset=UTF-8",
        "Language": "de",
        "Plural-Forms": "nplurals=2; plural=(n != 1);",
    }
    for source in sorted(wanted):
        entry = entries[source]
        entry.msgstr, entry.msgstr_plural = "", {0: "", 1: ""} if entry.msgid_plural else {}
        entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
        entry.previous_msgid = entry.previous_msgctxt = entry.previous_msgid_plural = None
        made.append(entry)
    return str(made)


def make_json(files: list[Path], count: int) -> str:
    trees = [json.loads(file.read_text(encoding="utf-8-sig")) for file in files]
    wanted = chosen([text for tree in trees for text in _texts(tree)], count)
    kept = {file.name: _only(tree, wanted) for file, tree in zip(files, trees, strict=True)}
    return json.dumps(kept, ensure_ascii=False, indent=2)


def _texts(tree: object) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, (dict, list)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _texts(each)


def _only(tree: object, wanted: set[str]) -> object:
    """The parts of a tree with these texts, each once."""
    if isinstance(tree, dict):
        kept = {name: _only(each, wanted) for name, each in tree.items()}
        return {name: each for name, each in kept.items() if each}
    if isinstance(tree, list):
        return [part for each in tree if (part := _only(each, wanted))]
    if tree in wanted:
        wanted.discard(str(tree))
        return tree
    return None


def _parent(element: etree._Element) -> etree._Element:
    parent = element.getparent()
    assert parent is not None
    return parent


def _make_xml(files: list[Path], count: int, unit: str, source: str | None, target: str | None) -> str:
    """The first file with elements of all: each unit, or its element `source`, has the text."""
    roots = [etree.parse(str(file)).getroot() for file in files]
    texts: dict[int, str] = {}
    units = [each for root in roots for each in root.iter(f"{{*}}{unit}")]
    for each in units:
        element = each if source is None else each.find(f"{{*}}{source}")
        texts[id(each)] = "" if element is None else "".join(map(str, element.itertext()))
    wanted = chosen(list(texts.values()), count)
    first = _parent(units[0])
    for each in units:
        parent = _parent(each)
        parent.remove(each)
        if parent is not first and parent is not roots[0] and parent.find(f"{{*}}{unit}") is None:
            _parent(parent).remove(parent)
        if texts[id(each)] in wanted and each.find("{*}numerusform") is None and each.get("numerus") is None:
            wanted.discard(texts[id(each)])
            for old in each.findall(f"{{*}}{target}") if target else ():
                each.remove(old)
            first.append(each)
    return str(etree.tostring(roots[0], encoding="unicode"))


def make_android(files: list[Path], count: int) -> str:
    return _make_xml(files, count, "string", None, None)


def make_xliff(files: list[Path], count: int) -> str:
    return _make_xml(files, count, "trans-unit", "source", "target")


def make_qt(files: list[Path], count: int) -> str:
    return _make_xml(files, count, "message", "source", "translation")


def make_subtitles(files: list[Path], count: int) -> str:
    blocks = re.split(r"\n\s*\n", files[0].read_text(encoding="utf-8-sig").replace("\r\n", "\n"))
    return "\n\n".join(blocks[:count]) + "\n"


def make_ass(files: list[Path], count: int) -> str:
    lines = [line.strip() for file in files for line in file.read_text(encoding="utf-8-sig").splitlines()]
    found = [line.split(",", 9)[9] for line in lines if line.startswith("Dialogue:")]
    texts = list(dict.fromkeys(text for text in found if any(map(str.isalpha, text))))[:count]
    cues = (
        f"{number}\n00:00:{number:02},000 --> 00:00:{number:02},900\n{text}\n" for number, text in enumerate(texts, 1)
    )
    return "\n".join(cues)


_MAKERS: dict[str, tuple[str, Callable[[list[Path], int], str]]] = {
    "po": (".po", make_po),
    "json": (".json", make_json),
    "android": (".xml", make_android),
    "qt": (".ts", make_qt),
    "xliff": (".xlf", make_xliff),
    "subtitles": (".srt", make_subtitles),
    "ass": (".srt", make_ass),
}


def document_of(package: Package, place: Path, count: int) -> Path:
    """The document with some units of a package."""
    ending, make = _MAKERS[package.kind]
    files = files_of(package, place)
    if package.kind == "subtitles":
        ending = files[0].suffix
    path = place / "documents" / package.source / f"{package.file_name}{ending}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(files, count), encoding="utf-8")
    return path


_UNUSABLE = re.compile(r"[\t\r\n]|^\w+_\w+$")  # in the table of pairs: line ends, and identifiers in place of texts


def memory_of(place: Path, count: int) -> Path:
    """German and English messages of the PO catalogs that are in no document."""
    path = place / "memory.tsv"
    if path.exists():
        return path
    catalogs = [package for package in PACKAGES if package.kind == "po"]
    asked = {entry.msgid for each in catalogs for entry in polib.pofile(str(document_of(each, place, 0)))}
    pairs = {
        entry.msgstr: entry.msgid
        for each in catalogs
        for file in files_of(each, place)
        for entry in polib.pofile(str(file)).translated_entries()
        if entry.msgstr and entry.msgid not in asked and not any(map(_UNUSABLE.search, (entry.msgid, entry.msgstr)))
    }
    some = sorted(pairs.items(), key=lambda pair: _position(pair[1]))[:count]
    path.write_text("".join(f"{german}\t{english}\n" for german, english in some), encoding="utf-8")
    return path


# Translations ---------------------------------------------------------------------------------------------------------


def _knnmt(code: Path, *arguments: str | Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(code / "src")}
    subprocess.run([sys.executable, "-m", "knnmt", *map(str, arguments)], check=False, env=environment)


def translate(code: Path, place: Path, out: Path, with_memory: bool) -> None:
    """Translate all documents with the code of a checkout."""
    for source, target in (("de", "en"), ("en", "de")):
        done = out / source
        languages = ["--model", f"{source}-{target}", "--source-lang", source, "--target-lang", target]
        options: list[str | Path] = []
        if with_memory:
            store = out.parent / f"{source}.store"
            if not store.exists():
                memory = place / f"memory-{source}.tsv"
                pairs = (line.split("\t") for line in (place / "memory.tsv").read_text(encoding="utf-8").splitlines())
                sides = (pair if source == "de" else pair[::-1] for pair in pairs)
                memory.write_text("".join("\t".join(each) + "\n" for each in sides), encoding="utf-8")
                _knnmt(code, "build", *languages, "-o", store, memory)
            options = ["-d", store]
        if not done.exists():
            _knnmt(code, "translate", *options, *languages, "--output-dir", done, place / "documents" / source)


# Counting -------------------------------------------------------------------------------------------------------------


def translated_units(before: Path, done: Path) -> list[Unit]:
    """The units of a document, with the targets of its translation."""
    document = open_document(before)
    after = open_document(_translation_of(before, done))
    if document.bilingual:
        return list(after.units)
    targets = {unit.id: unit.source for unit in after.units}
    return [
        replace(unit, target=targets[unit.id], state=State.TRANSLATED) if unit.id in targets else unit
        for unit in document.units
    ]


def _translation_of(before: Path, done: Path) -> Path:
    same = done / before.name
    named = [same] if same.exists() else sorted(done.glob(f"{before.name.split('.')[0]}.*"))
    if not named:
        raise SystemExit(f"{before}: no translation in {done}")
    return named[0]


def faults_of(unit: Unit, language: str) -> Iterator[tuple[str, str]]:
    """The classes and messages of the faults of a unit."""
    for problem in check_units("", [unit], language=language).problems:
        name = problem.kind
        if name == "form":
            name = f"form: {re.split(r' with |, | ', problem.message)[0]}"
        elif name in ("placeholder", "number", "tag"):
            name += " invented" if " not in the source" in problem.message else " lost or repeated"
        yield name, problem.message
    if unit.target is None:
        return
    source, target = plain(unit.source), plain(unit.target)
    for fault in content_faults(source, target):
        for sign in ("is empty", "is very short", "repeats"):
            if fault.message.startswith(sign):
                yield f"content {sign}", fault.message
    wanted, has = odd_words(source), odd_words(target)
    for each in wanted - has:
        yield "odd words: lost", each
    for each in has - wanted:
        yield "odd words: invented", each


def count(place: Path, out: Path, examples: dict[str, list[str]]) -> tuple[Counter[str], int]:
    """The faults by class, and the number of units."""
    found, units = Counter[str](), 0
    for package in PACKAGES:
        before = document_of(package, place, 0)
        for unit in translated_units(before, out / package.source):
            if not unit.translatable or not any(map(str.isalpha, plain(unit.source))):
                continue
            units += 1
            faults = list(faults_of(unit, package.target))
            found.update({name for name, _ in faults})
            for name, message in faults:
                sides = plain(unit.source), plain(unit.target or ())
                examples[name].append(f"{package.name}\t{message}\t{sides[0]!r}\t{sides[1]!r}")
    return found, units


def main() -> None:
    options = argument_parser(__doc__)
    options.add_argument("place", metavar="DIRECTORY", type=Path)
    options.add_argument("--units", type=int, default=40)
    options.add_argument("--pairs", type=int, default=2_000)
    options.add_argument("--code", metavar="CHECKOUT", type=Path, action="append")
    options.add_argument("--examples", type=int, default=0)
    asked = options.parse_args()
    for package in PACKAGES:
        document_of(package, asked.place, asked.units)
    memory_of(asked.place, asked.pairs)
    columns: dict[str, Counter[str]] = {}
    for code in asked.code or [HERE]:
        commit = subprocess.run(["git", "-C", code, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        for way, with_memory in (("alone", False), ("memory", True)):
            out = asked.place / commit.stdout.strip() / way
            translate(code, asked.place, out, with_memory)
            examples: dict[str, list[str]] = defaultdict(list)
            columns[f"{out.parent.name}, {way}"], units = count(asked.place, out, examples)
            (out / "faults.tsv").write_text(
                "".join(f"{name}\t{each}\n" for name, found in sorted(examples.items()) for each in found),
                encoding="utf-8",
            )
    print(f"{len(PACKAGES)} packages, {units:,} units; units with a fault of each class:\n")
    print_header("class", *columns)
    for name in sorted({name for found in columns.values() for name in found}):
        print_row(name, *(found[name] for found in columns.values()))
        for each in examples.get(name, [])[: asked.examples]:
            print("   ", each)


if __name__ == "__main__":
    main()
