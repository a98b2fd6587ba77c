"""The laboratory uses knnmt as any researcher does: by the names that `knnmt` and `knnmt.errors` export."""

from __future__ import annotations

import ast
from pathlib import Path

import knnmt
from conftest import ROOT

LABORATORY = ROOT / "src" / "knnmt_lab"
# What is left to do, as "module.name". No name may be added.
LEFT: set[str] = {
    "knnmt.compression.pca.reduce",
    "knnmt.compression.pruning.Search",
    "knnmt.compression.pruning.prune",
    "knnmt.compression.pruning.prune_known",
    "knnmt.compression.pruning.prune_surest",
    "knnmt.compression.transforming.key_blocks",
    "knnmt.corpus.reading.read_memories",
    "knnmt.datastore.building.build",
    "knnmt.datastore.overlap.known",
    "knnmt.datastore.store.Datastore",
    "knnmt.distributed.tasks.done_by",
    "knnmt.distributed.tasks.gpus_for",
    "knnmt.distributed.tasks.model_for_all",
    "knnmt.evaluation.plotting.new_figure",
    "knnmt.evaluation.plotting.save_figure",
    "knnmt.fitting.fidelity.Fidelity",
    "knnmt.fitting.fidelity.fidelity",
    "knnmt.index.base.Found",
    "knnmt.index.base.Index",
    "knnmt.index.base.nearest_first",
    "knnmt.index.base.nothing",
    "knnmt.index.centres.nearest_centres",
    "knnmt.index.entries.Entries",
    "knnmt.index.exact.ExactIndex",
    "knnmt.index.faiss_index.FaissIndex",
    "knnmt.index.kinds.codes_for",
    "knnmt.index.kinds.papers_lists",
    "knnmt.index.kinds.register_kind",
    "knnmt.index.saved.build_index",
    "knnmt.index.saved.save_index",
    "knnmt.index.store_index.StoreIndex",
    "knnmt.retrieval.occurrences.aligned_source_tokens",
    "knnmt.timing",
}


def imported_from_knnmt(path: Path) -> set[str]:
    """Every name that a file imports from knnmt, as "module.name"."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "knnmt":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "knnmt"}
    return found


def is_public(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if module == "knnmt.errors":
        return isinstance(getattr(knnmt.errors, last), type)
    return module == "knnmt" and last in knnmt.__all__


def test_the_laboratory_imports_only_public_names() -> None:
    names = set().union(*map(imported_from_knnmt, LABORATORY.rglob("*.py")))
    assert "knnmt.OpenStore" in names
    assert {name for name in names if not is_public(name)} == LEFT


def test_a_private_name_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "new.py"
    file.write_text(
        "from knnmt.errors import InputError, quoted\nimport knnmt.config\nfrom knnmt import adapt, timing\n"
    )
    names = imported_from_knnmt(file)
    assert {name for name in names if not is_public(name)} == {"knnmt.errors.quoted", "knnmt.config", "knnmt.timing"}
