"""TMX: a variant in the target language is added to units with a variant in the source language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from knnmt.corpus.languages import match_rank, matches
from knnmt.corpus.tmx import CONTEXT_PROPERTY, MACHINE_TOOL
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import State, TextDocument, Unit
from knnmt.documents.elements import Kind, as_markup, marked_text, plain
from knnmt.documents.markup import Element, escaped, marked_start, parse, with_content, xml_content
from knnmt.documents.provenance import REMARK, Provenances
from knnmt.errors import MalformedDocumentError, SettingError
from knnmt.protection.marked import Marked

_KINDS = {"bpt": Kind.OPENING, "ept": Kind.CLOSING, "hi": Kind.AROUND, "sub": Kind.AROUND}


class Tmx(TextDocument):
    """A memory. Added variants have creationtool="knnmt".

    languages: of the source and the target; by default the header's source language, and the only other one
    """

    format = "tmx"
    bilingual = True

    def __init__(self, data: bytes, name: str, languages: tuple[str | None, str | None] = (None, None)) -> None:
        content = xml_content(data, name)
        root = parse(content, "tmx")
        header = root.child("header")
        stated = header.attributes.get("srclang") if header is not None else None
        stated = None if stated is None or stated.lower() == "*all*" else stated
        source = languages[0] or stated
        if source is None:
            raise SettingError(f"{name}: states no source language. Give --source-lang and --target-lang")
        others = {
            tag for each in root.walk() if each.local == "tuv" and (tag := _tag(each)) and not matches(source, tag)
        }
        target = languages[1] or (others.pop() if len(others) == 1 else None)
        found = list(_found(content, root, source, target))
        super().__init__(content, (unit for unit, *_ in found), (source, target))
        self._target = target
        self._places = {unit.id: each[1:] for unit, each in zip(self.units, found, strict=True)}

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return as_markup(target, self.content)

    def edits(self, targets: Mapping[str, str], provenances: Provenances, /) -> Iterable[Edit]:
        for name, text in targets.items():
            source, target, last = self._places[name]
            note = "".join(f"<note>{escaped(each)}</note>" for each in provenances.remarks([name]))
            if target is not None:
                segment = target.child("seg")
                if segment is not None:
                    for each in target.each("note"):
                        if self.content.text.startswith(REMARK, each.inside):
                            yield Edit(each.start, each.end, "")
                    yield Edit(segment.start, segment.start, note)
                    yield with_content(self.content, segment, text)
                    yield marked_start(self.content, target, creationtool=MACHINE_TOOL)
                continue
            if self._target is None:
                raise SettingError(f"{self.content.name}: does not state the target language. Give --target-lang")
            indent = self.content.indent(source.start)
            between = "" if indent is None else self.content.line_end + indent
            variant = f'<tuv xml:lang="{self._target}" creationtool="{MACHINE_TOOL}">{note}<seg>{text}</seg></tuv>'
            yield Edit(last.end, last.end, between + variant)


_Found = tuple[Unit, Element, Element | None, Element]


def _found(content: Content, root: Element, source: str, target: str | None) -> Iterator[_Found]:
    """Units with the variants of source and target, and the last variant."""
    units = (each for each in root.walk() if each.local == "tu")
    for number, unit in enumerate(units, 1):
        variants = list(unit.each("tuv"))
        left = _best(variants, source)
        if left is None:
            continue
        segment = left.child("seg")
        if segment is None:
            line = content.line_number(left.start)
            raise MalformedDocumentError(f"{content.name}, line {line}: expected a <seg> in the <tuv>, found none")
        right = _best([each for each in variants if each is not left], target) if target else None
        translation: Marked = ()
        if right is not None and (held := right.child("seg")) is not None:
            translation = marked_text(content, held, _rule)
        state = State.UNTRANSLATED
        if plain(translation).strip() and right is not None:
            state = State.FUZZY if right.attributes.get("creationtool") == MACHINE_TOOL else State.TRANSLATED
        name = unit.attributes.get("tuid") or str(number)
        words = marked_text(content, segment, _rule)
        yield Unit(name, words, translation or None, state, _context(content, unit)), left, right, variants[-1]


def _context(content: Content, unit: Element) -> str:
    """The context, as `knnmt.corpus.tmx` reads it in memories."""
    said = (
        plain(marked_text(content, each, _rule))
        for each in unit.each("prop")
        if each.attributes.get("type", "").lower().startswith(CONTEXT_PROPERTY)
    )
    return "\n".join(filter(None, said))


def _best(variants: Iterable[Element], language: str) -> Element | None:
    ranked = [
        (rank, number, each)
        for number, each in enumerate(variants)
        if (rank := match_rank(language, _tag(each))) is not None
    ]
    return min(ranked, key=lambda each: each[:2])[2] if ranked else None


def _tag(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang") or ""


def _rule(element: Element) -> tuple[Kind, str | None]:
    if element.local == "it":
        return {"begin": Kind.OPENING, "end": Kind.CLOSING}.get(element.attributes.get("pos", ""), Kind.ALONE), None
    return _KINDS.get(element.local, Kind.ALONE), element.attributes.get("i")
