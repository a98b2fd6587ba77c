from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import divide, halves, is_held_out, position, spread


def _pairs(count: int) -> list[SegmentPair]:
    return [SegmentPair(f"Satz {number}", f"sentence {number}", "file:1") for number in range(count)]


def test_the_position_of_a_text_never_changes() -> None:
    assert round(position("Guten Morgen"), 6) == 0.783002
    assert position(" Guten\tMorgen ") == position("Guten Morgen")
    assert position("scho\u0308n") == position("sch\u00f6n")


def test_a_share_is_taken_and_nothing_lost() -> None:
    pairs = _pairs(2000)
    taken, left = divide(pairs, 0.1)
    assert 140 < len(taken) < 260
    assert sorted([*taken, *left], key=lambda pair: int(pair.source[5:])) == pairs


def test_what_was_taken_out_is_halved_evenly() -> None:
    taken, _ = divide(_pairs(5000), 0.1)
    one, other = halves(taken)
    assert 0.8 < len(one) / len(other) < 1.25


def test_equal_sources_fall_on_the_same_side() -> None:
    pairs = [SegmentPair("Ja", text, "file:1") for text in ("yes", "yeah", "yep")]
    assert sorted(map(len, divide(pairs, 0.5))) == [0, 3]
    assert sorted(map(len, halves(pairs))) == [0, 3]


def test_adapting_holds_out_evenly_whatever_was_taken_out_before() -> None:
    taken, left = divide(_pairs(20_000), 0.1)
    for part, share in ((left, 0.1), (taken, 0.1), (halves(left)[0], 0.01)):
        held_out = [pair for pair in part if is_held_out(pair.source, share)]
        assert 0.7 < len(held_out) / (len(part) * share) < 1.3
        one, other = halves(part)
        of_one, of_other = (sum(is_held_out(pair.source, 0.1) for pair in half) for half in (one, other))
        assert not other or 0.75 < of_one / of_other < 1.33
    assert is_held_out(" Guten\tMorgen ", 0.5) == is_held_out("Guten Morgen", 0.5)


def test_some_pairs_come_from_all_over() -> None:
    pairs = _pairs(10)
    assert spread(pairs, 4) == [pairs[0], pairs[2], pairs[5], pairs[7]]
    assert spread(pairs, 99) == pairs
    assert spread([], 5) == spread(pairs, 0) == []
