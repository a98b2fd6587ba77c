"""Requirements of constrained search as compiled code reads them (`native/required.h`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from knnmt.decoding.requirements import ConstrainedSentence
from knnmt.native.structures import address, made


class CompiledRequirements:
    """The requirements of one sentence, and the progress of its hypotheses.

    address, progress: where compiled code finds both
    """

    def __init__(self, sentence: ConstrainedSentence) -> None:
        required = sentence.required
        nodes = [required.root]
        for node in nodes:  # level by level, so that the children of a node follow each other
            nodes.extend(node.children.values())
        only = np.flatnonzero(required.only)
        arrays: dict[str, npt.NDArray[Any]] = {
            "times": _numbers(each.times for each in required.required),
            "joined_before": _flags([each.joined_before for each in required.required]),
            "joined_after": _flags([each.joined_after for each in required.required]),
            "depths": _numbers(node.depth for node in nodes),
            "ordinary": _flags([node.ordinary for node in nodes]),
            "child_starts": _starts(len(node.children) for node in nodes),
            "children": np.arange(1, len(nodes), dtype=np.int32),
            "child_tokens": np.array([token for node in nodes for token in node.children], np.int64),
            "below_starts": _starts(len(node.below) for node in nodes),
            "below": _numbers(each for node in nodes for each in sorted(node.below)),
            "end_starts": _starts(len(node.ends) for node in nodes),
            "ends": _numbers(each for node in nodes for each in node.ends),
            "only": _flags(required.only),
            "only_tokens": only,
            **{name: _flags(getattr(required.words, name)) for name in ("joins", "spaced", "closing", "blank")},
        }
        structure = made(
            "Required",
            count=len(required.required),
            width=sentence.width,
            late=sentence.late,
            only_count=len(only),
            **{name: address(array) for name, array in arrays.items()},
        )
        progress = np.zeros((sentence.width, 1 + len(required.required)), np.int32)
        self.address, self.progress = address(structure), address(progress)
        self._memory = arrays, structure, progress


def _numbers(numbers: Iterable[int]) -> npt.NDArray[np.int32]:
    return np.fromiter(numbers, np.int32)


def _starts(lengths: Iterable[int]) -> npt.NDArray[np.int32]:
    """Where each of successive lists begins, and the last ends."""
    return np.cumsum([0, *lengths], dtype=np.int32)


def _flags(flags: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    return np.asarray(flags, np.bool_).view(np.uint8)
