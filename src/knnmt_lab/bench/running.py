"""Generation speed of several systems, as in the paper's figures: tokens per second by batch size.

Each system has its own process, one works at a time, and all take turns within every round, so that a slow moment of
the machine affects all of them. A first round warms up and is not counted. Medians over the rounds are compared.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from knnmt import System, TranslationSettings, __version__
from knnmt_lab.bench.process import Answer, Answering, start
from knnmt_lab.bench.text import BenchText, describe_text
from knnmt_lab.checks import check

# The names of stages in a report, with the names that the engine, the index and the retrieval use.
STAGES = {
    "encoder": ("encoder",),
    "decoder": ("decoder", "output"),
    "search": ("search",),
    "retrieval": ("retrieval",),  # around the search: projection, cache, weights
    "interpolation": ("interpolation",),
}
REST = "the rest"  # beams, text, batching


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one system in every round."""

    system: str
    batch_size: int
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished job. Round 0 warms up."""

    round_number: int
    job: Job
    answer: Answer


@dataclass(frozen=True, slots=True)
class Measurement:
    """A system at a batch size, over all rounds that count.

    speeds: tokens per second of each round
    stage_milliseconds: by the names of `STAGES` and `REST`, per token, mean over the rounds
    saved: the part of all rows that was not searched, and the same without first steps, which the paper leaves out;
        None without a memory
    resident_mib: memory of the process after its last round; None if the machine does not tell
    """

    system: str
    batch_size: int
    speeds: tuple[float, ...]
    stage_milliseconds: Mapping[str, float]
    saved: float | None
    saved_after_first_steps: float | None
    resident_mib: int | None

    @property
    def median(self) -> float:
        return statistics.median(self.speeds)


def usable_threads() -> int:
    """PyTorch's default number of threads: OMP_NUM_THREADS, or the cores that this process may run on."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told) >= 1:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class BenchConfig:
    """How speed is measured; model, device, dtype and languages are as in `Translator`.

    settings: what all systems share, before the preset "raw"
    """

    batch_sizes: tuple[int, ...] = (1, 8, 16)
    rounds: int = 5
    settings: TranslationSettings = field(default_factory=TranslationSettings)
    threads: int = field(default_factory=usable_threads)
    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None

    def __post_init__(self) -> None:
        sizes = self.batch_sizes
        sound = bool(sizes) and min(sizes) >= 1 and len(set(sizes)) == len(sizes)
        check(sound, f"batch sizes must be different numbers of at least 1, got {', '.join(map(str, sizes)) or 'none'}")
        check(self.rounds >= 1, f"rounds must be at least 1, got {self.rounds}")


@dataclass(frozen=True, slots=True)
class BenchReport:
    """The measurements, by batch size and then by system, with the facts that a reader needs to judge them.

    machines: the machine of each system
    load: the machine's load average before the first system was started; None if it does not tell
    signatures: of each system
    """

    machines: Mapping[str, str]
    load: float | None
    text: BenchText
    config: BenchConfig
    signatures: Mapping[str, str]
    measurements: tuple[Measurement, ...]
    version: str = __version__

    @property
    def systems(self) -> list[str]:
        return list(self.signatures)

    def of(self, system: str, batch_size: int) -> Measurement:
        return next(each for each in self.measurements if (each.system, each.batch_size) == (system, batch_size))

    def ratio(self, measurement: Measurement) -> float:
        """Its median speed relative to the first system's, at the same batch size."""
        return measurement.median / self.of(self.systems[0], measurement.batch_size).median


def load_average() -> float | None:
    """How many processes wanted to run during the last minute; None if the machine does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def take_turns(systems: Mapping[str, Answering], jobs: Sequence[Job], rounds: int) -> Iterator[Turn]:
    """Run every job once in every round, in this order, one at a time. Round 0 comes first and warms up."""
    for round_number in range(rounds + 1):
        for job in jobs:
            yield Turn(round_number, job, systems[job.system].ask(job.texts, job.batch_size))


def summarise(turns: Sequence[Turn]) -> list[Measurement]:
    """A measurement for each system and batch size, in the order of their first turns."""
    answers: dict[tuple[str, int], list[Answer]] = {}
    for turn in turns:
        if turn.round_number > 0:
            answers.setdefault((turn.job.system, turn.job.batch_size), []).append(turn.answer)
    return [_measurement(system, size, given) for (system, size), given in answers.items()]


def _measurement(system: str, batch_size: int, answers: Sequence[Answer]) -> Measurement:
    tokens, seconds = sum(each.tokens for each in answers), sum(each.seconds for each in answers)
    by_stage = {
        stage: sum(each.stage_seconds.get(name, 0.0) for each in answers for name in names)
        for stage, names in STAGES.items()
    }
    by_stage[REST] = seconds - sum(by_stage.values())
    rows, searches, first_rows, first_searches = (
        sum(counts) for counts in zip(*(each.searches for each in answers), strict=True)
    )
    return Measurement(
        system,
        batch_size,
        tuple(each.tokens_per_second for each in answers),
        {stage: 1000 * spent / tokens for stage, spent in by_stage.items()},
        1 - searches / rows if rows else None,
        1 - (searches - first_searches) / (rows - first_rows) if rows > first_rows else None,
        answers[-1].resident_mib,
    )


def bench(
    systems: Sequence[System],
    sources: Sequence[str],
    config: BenchConfig | None = None,
    tell: Callable[[str], None] = lambda _: None,
    progress: Callable[[Turn], None] = lambda _: None,
    text_name: str = "",
) -> BenchReport:
    """Measure the speed of systems on the same sentences. The others are compared with the first.

    tell: called before the first turn with useful facts: that a store holds the sentences, or what would make a
        system's search faster
    progress: called after every turn
    text_name: the name of the sentences' file, for the report
    """
    config = config or BenchConfig()
    names = {system.name for system in systems}
    check(0 < len(names) == len(systems), "expected systems to measure, each with a different name")
    check(any(map(str.strip, sources)), "speed needs at least one sentence that is not empty")
    load = load_average()
    names_of_options = ("model", "device", "dtype", "source_lang", "target_lang")
    options = {name: getattr(config, name) for name in names_of_options if getattr(config, name)}
    with ExitStack() as stack:
        running = {
            system.name: stack.enter_context(start(system, config.settings, threads=config.threads, **options))
            for system in systems
        }
        about = {name: process.about() for name, process in running.items()}
        text = describe_text(text_name, sources, systems)
        for warning in text.warnings:
            tell(warning)
        if len(sources) < max(config.batch_sizes):
            tell(f"{len(sources)} sentences do not fill a batch of {max(config.batch_sizes)}; take more")
        for name, told in about.items():
            if told["hint"]:
                tell(f"{name}: {told['hint']}")
        jobs = [Job(name, size, sources) for size in config.batch_sizes for name in running]
        turns = []
        for turn in take_turns(running, jobs, config.rounds):
            progress(turn)
            turns.append(turn)
    return BenchReport(
        {name: told["machine"] for name, told in about.items()},
        load,
        text,
        config,
        {name: told["signature"] for name, told in about.items()},
        tuple(summarise(turns)),
    )
