"""Results that the service remembers take a limited amount of memory, whatever their lengths."""

from __future__ import annotations

from knnmt.service.scheduling.result_cache import ResultCache
from knnmt.translator.translation import Token, Translation


def result(characters: int) -> Translation:
    return Translation("a" * characters, "b" * characters, (Token(1, "b"),) * characters, 0.0)


def test_long_results_take_the_places_of_many() -> None:
    cache = ResultCache(100)
    for number in range(100):
        cache.put(number, result(10))
    assert len(cache) == 100
    for number in range(100, 110):
        cache.put(number, result(5_000))
    assert (len(cache), cache.get(109)) == (3, result(5_000))


def test_a_result_that_comes_again_is_counted_once() -> None:
    cache = ResultCache(10)
    for _ in range(100):
        cache.put("same", result(100))
        cache.put("other", result(100))
    assert cache.get("same") == cache.get("other") == result(100)


def test_alternatives_take_memory() -> None:
    cache = ResultCache(10)
    many = Translation("a", "b", (), 0.0, alternatives=(result(100),) * 16)
    for number in range(3):
        cache.put(number, many)
    assert len(cache) == 1
