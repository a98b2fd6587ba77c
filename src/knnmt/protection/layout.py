"""A text as leaves to translate, and the parts around them: the skeletons of ICU messages, tabs, line breaks.

Parts without words (placeholders, codes, white space) are not leaves, and stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from knnmt.protection.icu import Choice, Message, Quoted, parsed
from knnmt.protection.marked import Code, Marked, joined_strings, read
from knnmt.protection.placeholder_syntax import PLAIN, PlaceholderSyntax
from knnmt.protection.placeholders import Kind, find
from knnmt.protection.tags import breaks_line

_CODES = 0x10_0000  # private characters that stand for codes while a message is parsed
_MAX_CODES = 0xFFFF
_NUMBERS = ("5", "7", "8", "9", "6")  # numbers that may replace the number of a plural
_SINGULAR = ("1", "11", "21")

Template = tuple["str | Code | int", ...]  # numbers are leaves


@dataclass(slots=True)
class Layout:
    """The leaves of a text in order.

    template: the text, with the numbers of leaves in place of the leaves
    choices: the arguments with branches that codes in leaves stand for
    syntax: what counts as a placeholder
    inside: the leaves that stand in the middle of a sentence, as branches do
    """

    leaves: list[Marked] = field(default_factory=list)
    template: Template = ()
    choices: dict[str, Template] = field(default_factory=dict)
    syntax: PlaceholderSyntax = PLAIN
    inside: set[int] = field(default_factory=set)

    def filled(self, translated: Sequence[Marked]) -> Marked:
        """The whole text, with translations in place of its leaves."""
        return joined_strings(list(self._filled(self.template, translated)))

    def _filled(self, template: Template, translated: Sequence[Marked]) -> Iterator[str | Code]:
        for part in template:
            if isinstance(part, int):
                for each in translated[part]:
                    if isinstance(each, Code) and each.raw in self.choices:
                        yield from self._filled(self.choices[each.raw], translated)
                    else:
                        yield each
            else:
                yield part


def layout_of(text: Marked, syntax: PlaceholderSyntax = PLAIN) -> Layout:
    """The layout of a text. syntax: what counts as a placeholder"""
    layout = Layout(syntax=syntax)
    codes = [part for part in text if isinstance(part, Code)]
    words = read(tuple(part for part in text if isinstance(part, str)))
    message = None
    if "," in words and len(codes) < _MAX_CODES and max(words) < chr(_CODES):
        numbers = iter(range(_CODES, _CODES + len(codes)))
        message = parsed("".join(part if isinstance(part, str) else chr(next(numbers)) for part in text))
    layout.template = _cut(text, layout) if message is None else _of_message(message, codes, layout, singular=False)
    return layout


def _of_message(
    message: Message, codes: Sequence[Code], layout: Layout, singular: bool, begins: bool = True
) -> Template:
    """The template of a message: its words are a leaf, in which arguments with branches are codes.

    begins: whether it begins a text, and not the middle of a sentence
    """
    parts: list[str | Code] = []
    told = "".join(part for part in message if isinstance(part, str))
    number = next((each for each in (_SINGULAR if singular else _NUMBERS) if each not in told), "#")
    alone = not _has_words(_lowered(told, codes), layout.syntax)
    template: list[str | Code | int] = []
    for place, part in enumerate(message):
        if isinstance(part, Choice):
            choice = _of_choice(part, codes, layout, begins and place == 0)
            template += choice
            raw = f"{{{part.name}, {len(layout.choices)}}}"
            layout.choices[raw] = choice
            parts.append(Code(raw, shown=f"{{{part.name}}}"))
        elif isinstance(part, Quoted):
            template.append(part.raw)
            parts.append(Code(part.raw, shown=number if part.number else part.raw))
        else:
            template += _lowered(part, codes)
            parts += _lowered(part, codes)
    return tuple(template) if alone else _cut(tuple(parts), layout, begins)


def _of_choice(choice: Choice, codes: Sequence[Code], layout: Layout, begins: bool) -> Template:
    parts: list[str | Code | int] = [choice.head]
    for branch in choice.branches:
        parts += [branch.before, *_of_message(branch.message, codes, layout, branch.singular, begins), "}"]
    return (*parts, choice.tail)


def _lowered(text: str, codes: Sequence[Code]) -> Marked:
    """The text, with its codes restored."""
    return joined_strings(
        [codes[ord(letter) - _CODES] if 0 <= ord(letter) - _CODES < len(codes) else letter for letter in text]
    )


def _cut(text: Marked, layout: Layout, begins: bool = True) -> Template:
    """The template of a text, cut at tabs and at codes that break the line."""
    known = len(layout.leaves)
    template: list[str | Code | int] = []
    leaf: list[str | Code] = []

    def close() -> None:
        parts = joined_strings(leaf)
        if _has_words(parts, layout.syntax):
            template.append(len(layout.leaves))
            layout.leaves.append(parts)
        else:
            template.extend(parts)
        leaf.clear()

    for part in text:
        if isinstance(part, Code):
            if breaks_line(part):
                close()
                template.append(part)
            else:
                leaf.append(part)
            continue
        first, *others = part.split("\t")
        leaf.append(first)
        for other in others:
            close()
            template.append("\t")
            leaf.append(other)
    close()
    if not begins and len(layout.leaves) > known:
        layout.inside.add(known)
    return tuple(template)


def _has_words(text: Marked, syntax: PlaceholderSyntax) -> bool:
    """Whether there is something to translate: a letter outside of placeholders, or no code and no placeholder."""
    strings = [part for part in text if isinstance(part, str)]
    exact = [[each for each in find(part, syntax=syntax) if each.kind is Kind.EXACT] for part in strings]
    for part, found in zip(strings, exact, strict=True):
        inside = [False] * len(part)
        for each in found:
            inside[each.start : each.end] = [True] * (each.end - each.start)
        if any(letter.isalpha() and not here for letter, here in zip(part, inside, strict=True)):
            return True
    return len(strings) == len(text) and not any(exact) and any(part.strip() for part in strings)
