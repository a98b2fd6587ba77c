"""What a hypothesis must have, tracked token by token: a trie of the required sequences, and what was met.

    between     any token that may stand outside of what is required, or the first of something that is not met yet
    inside      the next token of what was begun. What only consists of ordinary tokens so far may be given up again
    at its end  met by whatever comes next, unless that goes on with its word

A hypothesis may end when all is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from knnmt.config import DecodingConfig

_MAX_MORE_HYPOTHESES = 16  # hypotheses beyond the beam: two for each requirement, at most this many
_PATIENCE = 4  # tokens
_SLACK = 16  # tokens of a translation beyond twice those of its source and all that is required


@dataclass(frozen=True, slots=True)
class Requirement:
    """Required content: one of several token sequences.

    times: how often, and no more often unless its tokens may occur anywhere
    joined_before, joined_after: whether it may directly follow a word or a closing mark, and whether a word may
        continue it
    """

    sequences: tuple[tuple[int, ...], ...]
    times: int = 1
    joined_before: bool = False
    joined_after: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """How tokens join others, (vocabulary,) each.

    joins: starts with a letter or digit that continues the word before
    spaced: a space comes before it
    closing: a space has to come after it
    blank: it is nothing but a space
    """

    joins: npt.NDArray[np.bool_]
    spaced: npt.NDArray[np.bool_]
    closing: npt.NDArray[np.bool_]
    blank: npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Node:
    """A prefix of required sequences.

    depth: its number of tokens
    below: requirements with a sequence that passes through here
    ends: requirements with a sequence that ends here
    ordinary: whether all its tokens may occur anywhere
    """

    depth: int = 0
    children: dict[int, Node] = field(default_factory=dict)
    below: set[int] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)
    ordinary: bool = True


@dataclass(frozen=True, slots=True)
class Fulfilment:
    """The progress of a hypothesis.

    met: how often each requirement is met
    node: the node inside a requirement, or the root outside
    last: its last token, -1 before the first
    """

    met: tuple[int, ...]
    node: Node
    last: int = -1


class Requirements:
    """All requirements of one sentence.

    only: (vocabulary,), tokens that may only occur in required content
    root: of the trie of all sequences
    length_penalty: a factor for that of the search. If required content is unlikely everywhere, a mean over tokens
        favours long hypotheses, which append it to a text that was complete without it
    total: the number of requirements to meet
    """

    def __init__(
        self,
        required: Sequence[Requirement],
        only: npt.NDArray[np.bool_],
        words: Words,
        end: int,
        length_penalty: float = 1.0,
    ) -> None:
        self.required, self.length_penalty = tuple(required), length_penalty
        self.only, self.words, self._end = only, words, end
        self.total = sum(each.times for each in required)
        self.root = Node(below=set(range(len(required))))
        for number, requirement in enumerate(required):
            for sequence in requirement.sequences:
                node = self.root
                for token in sequence:
                    ordinary = node.ordinary and not only[token]
                    node = node.children.setdefault(token, Node(node.depth + 1, ordinary=ordinary))
                    node.below.add(number)
                node.ends.append(number)

    def begin(self) -> Fulfilment:
        """The state before the first token."""
        return Fulfilment((0,) * len(self.required), self.root)

    def is_met(self, progress: Fulfilment) -> bool:
        """Whether the hypothesis may end here."""
        met = self._settled(progress)
        return all(count >= each.times for count, each in zip(met, self.required, strict=True))

    def share(self, progress: Fulfilment) -> tuple[int, int]:
        """The share of the beam in which a hypothesis competes: how much is met, and how many tokens it is further."""
        met = self._settled(progress)
        return sum(met), progress.node.depth if met == progress.met else 0

    def advancing(self, progress: Fulfilment) -> list[int]:
        """The tokens that start or continue a requirement that is not met yet."""
        node = progress.node
        tokens = [] if node is self.root else [t for t, child in node.children.items() if self._open(child, progress)]
        if node is self.root or node.ordinary or self._ended(progress) is not None:
            met = Fulfilment(self._settled(progress), self.root, progress.last)
            tokens += [token for token in self.root.children if token not in tokens and self._begun(met, token)]
        return [token for token in tokens if self.after(progress, token) is not None]

    def only_advances(self, progress: Fulfilment) -> bool:
        """Whether a requirement was started that must be continued."""
        node = progress.node
        return node is not self.root and not node.ordinary and self._ended(progress) is None

    def must_not_join(self, progress: Fulfilment) -> bool:
        """Whether the next token may not continue the word before it."""
        ended = self._ended(progress)
        return ended is not None and not progress.node.ordinary and not self.required[ended].joined_after

    def after(self, progress: Fulfilment, token: int) -> Fulfilment | None:
        """The progress after one more token; None if the token is not allowed."""
        node = progress.node
        if node is self.root:
            return self._between(progress, token)
        child = node.children.get(token)
        if child is not None and self._open(child, progress):
            return Fulfilment(progress.met, child, token)
        ended = self._ended(progress)
        if ended is None:
            if not node.ordinary:
                return None
            return self._between(Fulfilment(progress.met, self.root, progress.last), token)
        if self.words.joins[token] and not self.required[ended].joined_after:
            if not node.ordinary:
                return None
            return self._between(Fulfilment(progress.met, self.root, progress.last), token)
        return self._between(Fulfilment(self._settled(progress), self.root, progress.last), token)

    def _between(self, progress: Fulfilment, token: int) -> Fulfilment | None:
        begun = self._begun(progress, token)
        if begun is not None:
            return Fulfilment(progress.met, begun, token)
        if self.only[token] or (token == self._end and not self.is_met(progress)):
            return None
        return Fulfilment(progress.met, self.root, token)

    def _begun(self, progress: Fulfilment, token: int) -> Node | None:
        """The requirement that a token starts, if it is not met yet.

        The token must not continue another word, nor add a second space to the one before it.
        """
        child = self.root.children.get(token)
        if child is None or not self._open(child, progress):
            return None
        if progress.last >= 0 and self.words.blank[progress.last] and self.words.spaced[token]:
            return None
        joins = progress.last >= 0 and not self.words.spaced[token] and self.words.closing[progress.last]
        if joins and not any(self.required[each].joined_before for each in self._lacking(child.below, progress)):
            return None
        return child

    def _ended(self, progress: Fulfilment) -> int | None:
        """The requirement that the last tokens meet, unless their word goes on."""
        return next(iter(self._lacking(progress.node.ends, progress)), None)

    def _settled(self, progress: Fulfilment) -> tuple[int, ...]:
        """What is met if nothing continues the last tokens."""
        ended = self._ended(progress)
        if ended is None:
            return progress.met
        return tuple(count + (number == ended) for number, count in enumerate(progress.met))

    def _open(self, node: Node, progress: Fulfilment) -> bool:
        return bool(self._lacking(node.below, progress))

    def _lacking(self, numbers: Sequence[int] | set[int], progress: Fulfilment) -> list[int]:
        return [each for each in numbers if progress.met[each] < self.required[each].times]


@dataclass(frozen=True, slots=True)
class ConstrainedSentence:
    """A sentence whose hypotheses must have required content, and the limits of its search.

    config: with the sentence's own length and length penalty
    width: the number of hypotheses, at most
    late: the usual length of a translation: a longer hypothesis that lacks something does not keep the search going
    """

    required: Requirements
    config: DecodingConfig
    width: int
    late: int

    @classmethod
    def of(cls, source: Sequence[int], required: Requirements, config: DecodingConfig) -> ConstrainedSentence:
        """The search for a source; config: without anything that depends on the sentence."""
        tokens = sum(each.times * max(map(len, each.sequences)) for each in required.required)
        config = replace(
            config,
            max_tokens=min(config.max_tokens, 2 * len(source) + tokens + _SLACK),
            length_penalty=required.length_penalty * config.length_penalty,
            early_stopping=False,
        )
        width = config.beam + min(2 * required.total, _MAX_MORE_HYPOTHESES)
        return cls(required, config, width, len(source) + len(source) // 4 + _PATIENCE)
