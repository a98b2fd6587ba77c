"""The state of a step, for gates before the search and combiners after it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from knnmt.config import RetrievalConfig, check
from knnmt.retrieval.neighbours import Neighbours
from knnmt.retrieval.open_store import Snapshot

UNSIGNED = "unsigned"
_MOST_OFF = 1e-3  # from 1, of a sum of weights


@dataclass(frozen=True, slots=True)
class SentenceSoFar:
    """What the steps of a row's sentence have in common, (rows,) each.

    distance: the mean Euclidean distance to the nearest entry
    steps: how many there were
    """

    distance: Tensor
    steps: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The rows of one step that search one store. Its values are computed on demand.

    It is valid only during the call that receives it, because later steps reuse its memory.

    store: in its state in this batch; config: the settings
    states: (rows, dim), the decoder's states
    queries: (rows, d), the states in the space of the store's keys
    sentence: distances of all steps so far; for a combiner including the present step, for a gate without it
    all_log_probabilities, all_history: those of every row of the batch; rows: which of them belong to this step, None
        for all
    forced_prefix: how many first tokens were forced
    """

    store: Snapshot
    config: RetrievalConfig
    states: Tensor
    queries: Tensor
    sentence: SentenceSoFar
    all_log_probabilities: Tensor
    all_history: Tensor
    rows: Tensor | None = None
    forced_prefix: int = 0

    def __len__(self) -> int:
        return len(self.states)

    @property
    def log_probabilities(self) -> Tensor:
        """(rows, vocabulary), the model's own log-probabilities."""
        return self.all_log_probabilities if self.rows is None else self.all_log_probabilities[self.rows]

    @property
    def history(self) -> Tensor:
        """(rows, generated), the target tokens so far.

        Without forced first tokens (a language code), if no target of the store begins with them.
        """
        history = self.all_history if self.rows is None else self.all_history[self.rows]
        store = self.store.datastore
        if not self.forced_prefix or not store.segments:
            return history
        begins = store.segments[0].target_tokens(0)[: self.forced_prefix].tolist()
        return history if begins == history[0, : self.forced_prefix].tolist() else history[:, self.forced_prefix :]

    def counts(self, neighbours: Neighbours) -> Tensor | None:
        """(rows, k), how many entries each neighbour stands for after merging; None if each stands for itself."""
        return self.store.counts(neighbours.ids, self.config.use_counts)

    def keys(self, neighbours: Neighbours) -> Tensor:
        """(rows, k, d) float32, to be compared with `queries`; zeros for missing neighbours."""
        ids = neighbours.ids.flatten().cpu()
        there = (ids >= 0).nonzero()[:, 0]
        entries = self.store.index.entries
        keys = torch.zeros((len(ids), entries.dim))
        keys[there] = torch.from_numpy(entries.keys_of(ids[there].numpy())).float()
        return keys.view(*neighbours.ids.shape, -1).to(neighbours.ids.device)

    def own_log_probabilities(self, neighbours: Neighbours) -> Tensor:
        """(rows, k), the model's log-probability of each neighbour's token at the entry's own state; 0 for none."""
        ids = neighbours.ids
        found = self.store.index.entries.log_probabilities_of(ids.clamp(min=0).cpu())
        return found.to(ids.device).masked_fill(ids < 0, 0)


class Gate(Protocol):
    """Looks at a step before the search.

    It should also be `Signed`, if results are published or saved.
    """

    def __call__(self, step: Step, /) -> tuple[Tensor, Tensor | None]:
        """(rows,) bool, which rows are searched, and their log λ (rows,), or None to leave λ to the combiner.

        The other rows keep the model's own distribution.
        """


class Combiner(Protocol):
    """Looks at the neighbours after the search.

    It should also be `Signed`, if results are published or saved.
    """

    def __call__(self, step: Step, neighbours: Neighbours, /) -> tuple[Tensor, Tensor]:
        """Log-weights (rows, k) whose exponentials sum to 1, and log λ (rows,); -inf for rows without neighbours."""


@runtime_checkable
class Signed(Protocol):
    """A gate or a combiner that has a signature."""

    def signature(self) -> str:
        """Identifies it in published scores. Two that give different results have different signatures.

        It is short, without spaces and "|", such as "mine/3f2a9c01" with a digest of its weights.
        """


# Checks of results: wrong shapes would be used in silence, or fail far from the gate or combiner that made them -------


def ask_gate(gate: Gate, step: Step) -> tuple[Tensor, Tensor | None]:
    """The result of a gate for a step, with checked shapes."""
    found: Any = gate(step)
    rows = len(step)
    sound = isinstance(found, tuple) and len(found) == 2 and _shaped(found[0], rows) and found[0].dtype == torch.bool
    sound = sound and (found[1] is None or _shaped(found[1], rows))
    check(
        sound,
        f"a gate must return (rows,) bool, and (rows,) log λ or None, here for {rows} rows; {_named(gate, found)}",
    )
    if found[1] is not None:
        _require_numbers(gate, step.states, found[1])
    return found[0], found[1]


def ask_combiner(combiner: Combiner, step: Step, neighbours: Neighbours) -> tuple[Tensor, Tensor]:
    """The result of a combiner for neighbours, checked: their shapes, and of one that is not ours their sums, too."""
    found: Any = combiner(step, neighbours)
    rows, k = neighbours.ids.shape
    sound = isinstance(found, tuple) and len(found) == 2 and _shaped(found[0], rows, k) and _shaped(found[1], rows)
    check(
        sound,
        f"a combiner must return log-weights (rows, k) and log λ (rows,), here ({rows}, {k}) and ({rows},); "
        f"{_named(combiner, found)}",
    )
    _require_numbers(combiner, neighbours.distances_sq[:, :1], *found)
    if not _is_ours(combiner):
        log_weights, log_lambda = found
        used = log_lambda > -torch.inf  # other rows keep the model's distribution
        sums = log_weights[used].float().exp().sum(1)
        worst = (sums - 1).abs().max().item() if len(sums) else 0.0
        check(
            worst <= _MOST_OFF,
            f"{_name(combiner)} returned weights that do not sum to 1: a row differs by {worst:.3g}. Return their "
            "logarithms, normalised (torch.log_softmax)",
        )
        largest = log_lambda.max().item() if rows else -torch.inf
        check(
            largest <= _MOST_OFF,
            f"{_name(combiner)} returned {largest:.3g} as the logarithm of λ, which is then above 1: return log λ",
        )
    return found[0], found[1]


def _require_numbers(part: object, given: Tensor, *found: Tensor) -> None:
    """Refuse NaN in a row whose inputs are all numbers: it would look like a damaged memory.

    Our own parts give none and are not checked, because the check would have to wait for a GPU.
    """
    if not _is_ours(part):
        sound = given.isfinite().all(1)
        nan = any(bool(each[sound].isnan().any()) for each in found)
        check(not nan, f"{_name(part)} returned NaN for states and distances that are numbers")


def _is_ours(part: object) -> bool:
    return type(part).__module__.startswith("knnmt.")


def _shaped(found: object, *shape: int) -> bool:
    return isinstance(found, Tensor) and found.shape == shape


def _named(part: object, found: object) -> str:
    parts = found if isinstance(found, tuple) else (found,)
    kinds = [f"{tuple(each.shape)} {each.dtype}" if isinstance(each, Tensor) else repr(each) for each in parts]
    return f"{_name(part)} gave {', '.join(kinds)}"


def _name(part: object) -> str:
    return str(getattr(part, "__qualname__", type(part).__qualname__))


# Checks of arguments --------------------------------------------------------------------------------------------------


def require_callable(part: object, name: str, *arguments: str) -> None:
    """Refuse a gate or a combiner that cannot be called with these arguments."""
    sound = callable(part) and takes(part, len(arguments))
    check(sound, f"a {name} is called with ({', '.join(arguments)}), which this one does not take: {part!r}")


def takes(part: Callable[..., Any], count: int) -> bool:
    """Whether an object can be called with this many arguments."""
    try:
        inspect.signature(part).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # code written in C does not always tell
        return True
    return True
