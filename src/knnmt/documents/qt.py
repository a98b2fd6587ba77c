"""Catalogs of Qt (TS): messages in contexts, with forms for numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from knnmt.corpus.plural_forms import form_contexts
from knnmt.documents.content import Content, Edit
from knnmt.documents.document import State, TextDocument, Unit, short_id
from knnmt.documents.elements import Kind, as_markup, marked_text, plain
from knnmt.documents.markup import Element, escaped, marked_start, parse, with_content, xml_content
from knnmt.documents.provenance import REMARK, Provenances
from knnmt.protection.marked import Marked

_GONE = ("vanished", "obsolete")


class QtCatalog(TextDocument):
    """A catalog. A target stays type="unfinished", which is Qt Linguist's mark for review."""

    format = "qt"
    bilingual = True

    def __init__(self, data: bytes, name: str) -> None:
        content = xml_content(data, name)
        root = parse(content, "TS")
        found = list(_found(content, root))
        languages = root.attributes.get("sourcelanguage"), root.attributes.get("language")
        super().__init__(content, (unit for unit, *_ in found), languages)
        self._places = {unit.id: each[1:] for unit, each in zip(self.units, found, strict=True)}

    def written(self, _unit: Unit, target: Marked, /) -> str:
        return as_markup(target, self.content)

    def edits(self, targets: Mapping[str, str], provenances: Provenances, /) -> Iterable[Edit]:
        messages: dict[Element, list[str]] = {}
        for name, text in targets.items():
            source, translation, form, copies = self._places[name]
            assert source.parent is not None  # noqa: S101 - the source is that of a message
            messages.setdefault(source.parent, []).append(name)
            if copies:  # the source is the same for every plural form
                text = f"<numerusform>{text}</numerusform>" * copies
            if translation is None:
                indent = _indent(self.content, source)
                comment = self._new_comment(source.parent, provenances.remarks([name]), indent)
                new = f'{indent}<translation type="unfinished">{text}</translation>'
                yield Edit(source.end, source.end, comment + new)
            elif form is None:
                yield with_content(self.content, translation, text, type="unfinished")
            else:
                yield marked_start(self.content, translation, type="unfinished")
                yield with_content(self.content, form, text)
        for message, names in messages.items():
            yield from self._comment_edits(message, provenances.remarks(names))

    def _comment_edits(self, message: Element, remarks: Sequence[str]) -> Iterator[Edit]:
        """The translator's comment, with these lines in place of those of an earlier run."""
        comment, translation = message.child("translatorcomment"), message.child("translation")
        if comment is not None:
            old = self.content.text[comment.inside : comment.inside_end].splitlines()
            lines = [line for line in old if not line.strip().startswith(REMARK)] + list(map(escaped, remarks))
            if lines != old:
                yield with_content(self.content, comment, self.content.line_end.join(lines))
        elif translation is not None:
            indent = _indent(self.content, translation)
            new = self._new_comment(message, remarks, "")
            yield Edit(translation.start, translation.start, new + indent if new else "")

    def _new_comment(self, message: Element, remarks: Sequence[str], indent: str) -> str:
        """A translator's comment with these lines; nothing if the message has one, or there are none."""
        if not remarks or message.child("translatorcomment") is not None:
            return ""
        return f"{indent}<translatorcomment>{self.content.line_end.join(map(escaped, remarks))}</translatorcomment>"


_Found = tuple[Unit, Element, Element | None, Element | None, int]


def _found(content: Content, root: Element) -> Iterator[_Found]:
    """Units with their source, their translation and, in messages for numbers, their form, or how many to make."""
    most = max((len(list(each.each("numerusform"))) for each in root.walk() if each.local == "translation"), default=0)
    for context in root.each("context"):
        title = context.child("name")
        group = short_id(plain(marked_text(content, title, _rule))) if title is not None else ""
        for number, message in enumerate(context.each("message"), 1):
            source, translation = message.child("source"), message.child("translation")
            name = short_id(message.attributes.get("id") or f"{group}/{number}")
            if source is None:
                continue
            is_numeric = message.attributes.get("numerus") == "yes"
            held = list(translation.each("numerusform")) if translation is not None else []
            forms: Sequence[Element | None] = held if is_numeric and held else [None]
            contexts = form_contexts(_disambiguation(content, message), [""] * len(forms))  # with the same source
            for form_number, (form, used) in enumerate(zip(forms, contexts, strict=True)):
                unit = _unit(content, source, translation, form)
                known = f"{name}[{form_number}]" if form is not None else name
                copies = max(most, 1) if is_numeric and form is None else 0
                yield Unit(known, *unit[:3], used, unit[3]), source, translation, form, copies


def _unit(
    content: Content, source: Element, translation: Element | None, form: Element | None
) -> tuple[Marked, Marked | None, State, bool]:
    stands = form if form is not None else translation
    target = marked_text(content, stands, _rule) if stands is not None else ()
    kind = translation.attributes.get("type") if translation is not None else None
    state = State.UNTRANSLATED
    if plain(target).strip():
        state = State.FUZZY if kind == "unfinished" else State.TRANSLATED
    return marked_text(content, source, _rule), target or None, state, kind not in _GONE


def _disambiguation(content: Content, message: Element) -> str:
    """The text that distinguishes the message from others with the same source."""
    comment = message.child("comment")
    return plain(marked_text(content, comment, _rule)).strip() if comment is not None else ""


def _rule(_element: Element) -> tuple[Kind, str | None]:
    return Kind.ALONE, None  # <byte value="x7"/>


def _indent(content: Content, element: Element) -> str:
    indent = content.indent(element.start)
    return "" if indent is None else content.line_end + indent
