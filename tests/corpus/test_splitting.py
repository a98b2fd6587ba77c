from knnmt.corpus.pairs import SegmentPair
from knnmt.corpus.splitting import divide, halves, position


def _pairs(count: int) -> list[SegmentPair]:
    return [SegmentPair(f"Satz {number}", f"sentence {number}", "file:1") for number in range(count)]


def test_the_position_of_a_text_never_changes() -> None:
    assert round(position("Guten Morgen"), 6) == 0.783002
    assert position(" Guten\tMorgen ") == position("Guten Morgen")


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
