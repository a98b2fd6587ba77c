"""Producing:

every stage of every domain in turn. If interrupted, call it again; it resumes, and at most one stage is lost.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout

from knnmt import Bars, Translator
from knnmt.errors import InputError, SettingError, StorageError
from knnmt_lab.reproduction.config import ReproductionConfig, hold_to_plan
from knnmt_lab.reproduction.plan import Row, all_rows, chosen_rows
from knnmt_lab.reproduction.stages import DomainStages, Stage
from knnmt_lab.reproduction.steps import DomainSteps
from knnmt_lab.reproduction.texts import domains_in, files_of

NO_BARS: Bars = lambda _description, _unit: nullcontext(lambda _done, _total: None)  # noqa: E731


@dataclass(frozen=True, slots=True)
class Begun:
    """A reproduction whose settings were checked and which may start.

    exact: the blocks that search every key
    end: a time of `time.perf_counter` after which no stage starts
    """

    config: ReproductionConfig
    domains: Sequence[str]
    translator: Translator
    languages: tuple[str, str]
    rows: list[Row]
    exact: frozenset[str]
    end: float | None

    def produce(self, tell: Callable[[str], None], bars: Bars) -> int:
        """Run the stages that are not done. Return how many remain if the time was too short."""
        config = self.config
        with ExitStack() as locks:
            for name in self.domains:  # one by one, so that several processes can share the domains of one output
                for place in (config.output / name, config.store_directory / name):
                    place.mkdir(parents=True, exist_ok=True)
                    locks.enter_context(alone_in(place))
            stages: list[Stage] = []
            for name in self.domains:
                steps = DomainSteps(name, config, self.translator, self.languages, self.rows, self.exact, bars)
                stages += DomainStages(config, steps).stages()
            return _run(stages, self.end, tell, config.keep_going)


def produce(config: ReproductionConfig, tell: Callable[[str], None] = print, bars: Bars = NO_BARS) -> int:
    """Run the stages that are not done. Return how many remain if the time was too short.

    tell: is called with a line about every finished stage
    bars: as in `adapting`
    """
    return begin(config).produce(tell, bars)


def begin(config: ReproductionConfig) -> Begun:
    """Load the model, and compare the settings with those of an earlier run with the same output."""
    end = None if config.minutes is None else time.perf_counter() + 60 * config.minutes
    domains = _domains(config)
    translator = Translator(
        config.model,
        device=config.device,
        dtype="float32",
        threads=config.threads,
        source_lang=config.source_language,
        target_lang=config.target_language,
    )
    engine = translator.engine
    exact = config.exact or engine.device.type != "cpu"
    if "A" in config.blocks or not exact:
        _require_faiss()
    rows = chosen_rows(all_rows(engine.dim, config.blocks), config.systems, config.without, config.brief)
    languages = (
        config.source_language or engine.languages.source or "de",
        config.target_language or engine.languages.target or "en",
    )
    hold_to_plan(config, engine.fingerprint.model, "exact" if exact else "index", languages)
    return Begun(config, domains, translator, languages, rows, frozenset("B" if exact else ""), end)


@contextmanager
def alone_in(place: Path) -> Iterator[None]:
    """Hold a directory's lock, or raise an error if another process does."""
    lock = FileLock(place / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise StorageError(f"{place}: another process is working there. Wait until it is done, or stop it") from error
    try:
        yield
    finally:
        lock.release()


def _run(stages: Sequence[Stage], end: float | None, tell: Callable[[str], None], keep_going: bool = False) -> int:
    failed = 0
    left = [stage for stage in stages if not stage.done()]
    done = len(stages) - len(left)
    if done:
        tell(f"{done} of {len(stages)} stages were done before")
    for number, stage in enumerate(left):
        begun = time.perf_counter()
        if end is not None and begun > end:
            tell(
                f"time is up: {len(left) - number} stages remain, starting with {stage.name}; rerun the command "
                f"to resume"
            )
            return len(left) - number + failed
        if not stage.done():  # an earlier stage may have done it as well
            try:
                stage.run()
            except Exception:
                if not keep_going:
                    raise
                failed += 1
                tell(f"{stage.name} failed:\n{traceback.format_exc()}")
                continue
        tell(f"[{done + number + 1}/{len(stages)}] {stage.name}: {time.perf_counter() - begun:.1f} s")
    return failed


def _domains(config: ReproductionConfig) -> Sequence[str]:
    """The requested domains, or all; each must have enough text."""
    there = domains_in(config.data)
    for name in config.domains:
        if name not in there:
            raise InputError(f"{config.data}: has no domain {name!r}; it has {', '.join(there)}")
    for name in config.domains or there:
        files_of(config.data / name)
    return list(dict.fromkeys(config.domains)) or there


def _require_faiss() -> None:
    """Raise an error before any work, with the alternative that needs no FAISS."""
    if find_spec("faiss") is None:
        raise SettingError("FAISS is missing: pip install 'knnmt[faiss]'; or run without it: --blocks B --exact")
