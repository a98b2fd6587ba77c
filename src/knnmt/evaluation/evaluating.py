"""An evaluation from text and systems to a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from knnmt.corpus.options import ReadingConfig
from knnmt.corpus.writing import write_tsv
from knnmt.datastore.overlap import Known, known
from knnmt.datastore.publication import storage_errors
from knnmt.datastore.store import Datastore
from knnmt.documents.memory_reading import MemoriesOrPairs
from knnmt.errors import CometError
from knnmt.evaluation.loading import Model, model_of_evaluation, translator_of
from knnmt.evaluation.reports import Report, SystemReport
from knnmt.evaluation.running import OnTranslation, Run, machine, run_systems
from knnmt.evaluation.scoring import Metric, Score, compare, require_sacrebleu
from knnmt.evaluation.segments import EvaluationText, Half, read_pairs, read_text
from knnmt.evaluation.systems import System, gather_systems, run_settings
from knnmt.output_files import write_output
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translator.settings import Preset
from knnmt.translator.translator import Translator

_Text = MemoriesOrPairs | tuple[str | Path, str | Path] | EvaluationText
_KNOWN = "its source is in a store"


def evaluate(
    text: _Text,
    datastores: str | Path | Sequence[str | Path] = (),
    settings: RetrievalSettings | Preset | None = None,
    *,
    systems: Sequence[str | System] = (),
    base: bool = True,
    half: Half = "all",
    skip_known: bool = False,
    model: Model | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    output: str | Path | None = None,
    comet: Metric | None = None,
    on_translation: OnTranslation = lambda translations, _name, _total: translations,
) -> Report:
    """Translate a text with every system and compare each with the first, as `knnmt evaluate` does.

    text: a memory in any format, a text and its translation as two files, or pairs; targets are the references
    datastores: each is a system, the model with this store
    settings: what all systems share (`TranslationSettings`), before the preset "raw" and batches of 32
    systems: more systems, written as for `--system`: "cached=it.store,cache=6,k=4"
    base: the model alone is the first system
    half: "report" or "tune": one half of the text, divided by a hash of the source as in `tune`
    skip_known: leave out segments whose source a store holds, for all systems
    model: a shipped model, a checkpoint directory, a Hugging Face name, or a loaded `Translator`; by default the model
        of the first store, or without a store the shipped model for the languages of the text
    output: a directory for hypotheses, segments (segments.tsv) and the report; the same call resumes after the finished
        systems
    on_translation: is called with a system's translations, its name and their number
    """
    paths = [datastores] if isinstance(datastores, str | Path) else datastores
    systems = gather_systems(list(map(Path, paths)), systems, base)
    model, languages, text = _model(model, systems, text, source_lang, target_lang)
    require_sacrebleu(languages[1])
    text = _read(text, ReadingConfig(*languages), half)
    translator = translator_of(
        model, device=device, dtype=dtype, threads=threads, source_lang=source_lang, target_lang=target_lang
    )
    output = None if output is None else Path(output)
    shared = run_settings(settings)
    in_stores = _known(translator, systems, text)
    if skip_known and (numbers := frozenset[int]().union(*(each.sources for each in in_stores.values()))):
        text = text.without(numbers, _KNOWN)
    if output is not None:
        with storage_errors(output):  # before hours of translating, not after
            output.mkdir(parents=True, exist_ok=True)
        write_tsv(output / "segments.tsv", text.segments)
    runs = run_systems(translator, systems, text.sources, shared, output, on_translation, languages)
    scores = compare([run.hypotheses for run in runs], text.references, languages[1])
    comet_scores, no_comet = _comet_scores(comet, runs, text)
    report = Report(
        [SystemReport(*each) for each in zip(runs, scores, comet_scores, strict=True)],
        text,
        in_stores,
        skip_known,
        shared,
        machine(translator),
        no_comet,
    )
    if output is not None:
        write_json(report, output / "report.json")
        write_markdown(report, output / "report.md")
    return report


def _model(
    model: Model | None, systems: Sequence[System], text: _Text, source_lang: str | None, target_lang: str | None
) -> tuple[Model, tuple[str, str], _Text]:
    """The model to evaluate, the languages, and the text, which is still to be read."""
    if isinstance(text, EvaluationText):
        return (*model_of_evaluation(model, systems, text.segments, source_lang, target_lang)[:2], text)
    files = cast("tuple[str | Path, str | Path]", text) if isinstance(text, tuple) else None
    chosen, languages, read = model_of_evaluation(model, systems, files or text, source_lang, target_lang)
    return chosen, languages, text if files is not None else read


def _read(
    text: _Text,
    reading: ReadingConfig,
    half: Half,
) -> EvaluationText:
    if isinstance(text, EvaluationText):
        return text
    if isinstance(text, tuple) and len(text) == 2 and isinstance(text[0], str | Path):
        source, reference = text
        return read_text(Path(source), Path(reference), reading, half)
    return read_pairs(text, reading, half)


def write_json(report: Report, path: Path) -> None:
    """Write the report as JSON."""
    _write(path, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")


def write_markdown(report: Report, path: Path) -> None:
    """Write the report as Markdown."""
    _write(path, report.as_markdown())


def _write(path: Path, content: str) -> None:
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_output(path, content.encode())


def _known(translator: Translator, systems: Sequence[System], text: EvaluationText) -> dict[str, Known]:
    """How much of the text each store holds. All stores are opened first, to show errors early."""
    places = dict.fromkeys(system.datastore for system in systems if system.datastore is not None)
    stores = [Datastore.open(place, translator.engine) for place in places]
    return {str(store.path): known(text.segments, store.pairs()) for store in stores}


def _comet_scores(comet: Metric | None, runs: Sequence[Run], text: EvaluationText) -> tuple[list[Score | None], str]:
    """COMET's scores, and the reason if it fails. Then all are None, so that the other figures are not lost."""
    if comet is None:
        return [None] * len(runs), CometError.advice
    try:
        return [comet.score(text.sources, run.hypotheses, text.references) for run in runs], ""
    except CometError as error:
        return [None] * len(runs), str(error)
