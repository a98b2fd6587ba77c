"""Checks an index that FAISS has read from a file before it is searched, because FAISS itself trusts the file.

FAISS checks that the parts of a file fit together. These checks make sure that they fit the store, and that every id
belongs to an entry. They run once and take a few milliseconds for a million entries.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from knnmt.datastore.arrays import Array

_FLAT = "Flat"  # the recipe of every kind if there are too few entries to train on


# The parts that are checked here, in the possible orders.
_KNOWN = re.compile(
    r"(IndexPreTransform (linear )+)?(IndexFlat|("
    r"IndexIVF(Flat|ScalarQuantizer|PQ) ArrayInvertedLists|"
    r"IndexIVF(PQ|RaBitQ)FastScan BlockInvertedLists) IndexFlat)"
)


def has_known_parts(faiss: Any, index: Any) -> bool:
    """Whether every part of an index is checked here."""
    return _KNOWN.fullmatch(" ".join(_structure(faiss, index))) is not None


def require_sound(faiss: Any, index: Any, dim: int, covered: int, recipe: str | None) -> None:
    """ValueError unless this is an index of the first `covered` keys of `dim` dimensions, made by a recipe.

    recipe: None if it is unknown; then every part must be one that is checked here
    """
    strange = "it is of the kind {}, which knnmt does not build"
    if recipe is None:
        _require(has_known_parts(faiss, index), strange.format(" of ".join(_structure(faiss, index))))
    _require(index.d == dim, f"it has {index.d} dimensions, but the store's keys have {dim}")
    _require(index.ntotal == covered, f"it has {index.ntotal:,} entries, but its record says {covered:,}")
    trained = index.metric_type == faiss.METRIC_L2 and index.is_trained
    _require(trained, "it was not trained, or for something else")
    found = _structure(faiss, index)
    graphs = any("HNSW" in part for part in found)  # links of a graph may lead anywhere, and are not checked
    _require(not graphs, strange.format(" of ".join(found)))
    if isinstance(index, faiss.IndexRefine):
        rest = faiss.downcast_index(index.refine_index)
        _require((rest.d, rest.ntotal) == (dim, covered), "the keys that it measures again are not the store's")
        index = faiss.downcast_index(index.base_index)
    if isinstance(index, faiss.IndexPreTransform):
        index = _behind_transforms(faiss, index)
    if isinstance(index, faiss.IndexIVF):
        _require_lists(faiss, index, covered)
    if recipe is not None:
        made = [_structure(faiss, faiss.index_factory(dim, each)) for each in (recipe, _FLAT)]
        _require(found in made, strange.format(" of ".join(found)))


def _structure(faiss: Any, owner: Any) -> tuple[str, ...]:
    """The classes of the parts of an index, from the outside in; all linear transforms have the same name."""
    index = faiss.downcast_index(owner)  # FAISS frees it with its owner
    name = "IndexFlat" if isinstance(index, faiss.IndexFlat) else type(index).__name__  # as a file has IndexFlatL2
    if isinstance(index, faiss.IndexRefine):
        parts = [_structure(faiss, each) for each in (index.base_index, index.refine_index)]
    elif isinstance(index, faiss.IndexPreTransform):
        chain = [faiss.downcast_VectorTransform(index.chain.at(place)) for place in range(index.chain.size())]
        linear = (isinstance(each, faiss.LinearTransform) for each in chain)
        names = tuple("linear" if same else type(each).__name__ for same, each in zip(linear, chain, strict=True))
        parts = [names, _structure(faiss, index.index)]
    elif isinstance(index, faiss.IndexIVF):
        lists = type(faiss.downcast_InvertedLists(index.invlists)).__name__
        parts = [(lists,), _structure(faiss, index.quantizer)]
    else:
        parts = []
    return (name, *(each for part in parts for each in part))


def ids_of_lists(faiss: Any, lists: Any) -> Array:
    """The ids of all lists, one after the other."""
    numbers = range(lists.nlist)
    sizes = [(number, lists.invlists.list_size(number)) for number in numbers]
    parts = [faiss.rev_swig_ptr(lists.invlists.get_ids(number), size).copy() for number, size in sizes if size]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _behind_transforms(faiss: Any, index: Any) -> Any:
    """The index behind a chain of linear transforms, each of which takes the output of the one before."""
    dim = index.d
    for place in range(index.chain.size()):
        each = faiss.downcast_VectorTransform(index.chain.at(place))
        whole = each.is_trained and each.d_in == dim
        if isinstance(each, faiss.LinearTransform):
            bias = each.d_out if each.have_bias else each.b.size()
            whole = whole and each.A.size() == each.d_in * each.d_out and each.b.size() == bias
            _require_finite(faiss, each.A, each.b)
        _require(whole, "a transform of the keys does not fit them")
        dim = each.d_out
    inner = faiss.downcast_index(index.index)
    same = inner.d == dim and inner.ntotal == index.ntotal and inner.is_trained
    _require(same and inner.metric_type == index.metric_type, "the part after its transforms does not fit them")
    return inner


def _require_lists(faiss: Any, lists: Any, covered: int) -> None:
    centres, inverted = faiss.downcast_index(lists.quantizer), faiss.downcast_InvertedLists(lists.invlists)
    _require(lists.nlist >= 1 and inverted.nlist == centres.ntotal == lists.nlist, "its lists and centres do not fit")
    whole = centres.d == lists.d and centres.codes.size() == 4 * lists.d * lists.nlist
    _require(whole, "its centres are not as wide as its keys")
    _require_finite(faiss, centres.codes)
    if isinstance(inverted, faiss.BlockInvertedLists):
        packed = lists.bbs == 32 and lists.implem == 0 and lists.M2 == lists.M + lists.M % 2
        sizes = (inverted.n_per_block, inverted.block_size)
        _require(packed and sizes == (32, lists.get_block_stride()), "its codes are packed in another way")
    else:
        _require(inverted.code_size == lists.code_size, "its codes are of another size")
    if hasattr(lists, "pq"):
        codes = lists.pq
        whole = codes.d == lists.d == codes.M * codes.dsub and codes.ksub == 1 << codes.nbits
        whole = whole and codes.centroids.size() == codes.d * codes.ksub and codes.code_size == lists.code_size
        _require(whole and getattr(lists, "M", codes.M) == codes.M, "its codes do not fit its keys")
        _require_finite(faiss, codes.centroids)
    if hasattr(lists, "sq"):
        _require(lists.sq.d == lists.d and lists.sq.code_size == lists.code_size, "its codes do not fit its keys")
    ids = ids_of_lists(faiss, lists)
    _require(len(ids) == covered, f"its lists hold {len(ids):,} entries, not {covered:,}")
    _require_each_once(ids, covered)


def _require_each_once(ids: Array, covered: int) -> None:
    if covered:
        _require(ids.min() >= 0 and ids.max() < covered, f"it holds an id that is none of {covered:,} entries")
        _require(bool((np.bincount(ids, minlength=covered) == 1).all()), "it does not hold every entry once")


def _require_finite(faiss: Any, *vectors: Any) -> None:
    for each in vectors:
        array = faiss.vector_to_array(each)
        finite = np.isfinite(array.view(np.float32) if array.dtype == np.uint8 else array).all()
        _require(bool(finite), "it contains a number that is not finite")


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)
