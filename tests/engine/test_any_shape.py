from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from knnmt.engine import forced, transformer
from knnmt.engine.any_shape import any_shape
from knnmt.engine.fixed_state import FixedState
from knnmt.engine.transformer import TransformerEngine


def allowed() -> bool:
    found: bool = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    return found


@pytest.fixture
def flags() -> Iterator[list[bool]]:
    """Whether cuDNN's attention may be used; as it is, in the end."""
    found = [allowed()]
    yield found
    torch.backends.cuda.enable_cudnn_sdp(found[0])


@pytest.mark.parametrize("enabled", [True, False])
def test_cudnn_is_out_meanwhile_and_then_as_before(flags: list[bool], enabled: bool) -> None:
    torch.backends.cuda.enable_cudnn_sdp(enabled)
    with any_shape(torch.device("cuda")):
        with any_shape(torch.device("cuda")):
            assert not allowed()
        assert not allowed()
    assert allowed() == enabled
    stopped = any_shape(torch.device("cuda"))
    stopped.__enter__()
    stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert allowed() == enabled


def test_a_cpu_needs_nothing(flags: list[bool]) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    with any_shape(torch.device("cpu")):
        assert allowed()


def test_others_that_are_inside_keep_it_out(flags: list[bool]) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    first, second = any_shape(torch.device("cuda")), any_shape(torch.device("cuda"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # as another thread would, before the second is done
    assert not allowed()
    second.__exit__(None, None, None)
    assert allowed()


def test_all_attention_but_that_of_recorded_steps_takes_any_shape(
    tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encoder, steps and forced passes, all asked as a GPU would be."""
    inside: list[str] = []
    monkeypatch.setattr(transformer, "any_shape", lambda _: _noted("model", inside))
    monkeypatch.setattr(forced, "any_shape", lambda _: _noted("forced", inside))
    attention = torch.nn.functional.scaled_dot_product_attention
    seen: list[list[str]] = []

    def noting(*given: Any, **named: Any) -> torch.Tensor:
        seen.append(list(inside))
        return attention(*given, **named)

    def all_in(names: list[str]) -> bool:
        found = bool(seen) and all(each == names for each in seen)
        seen.clear()
        return found

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)
    for name in ("_compiled", "_compiled_encoder"):
        monkeypatch.setattr(tiny, name, None)
    state, token = tiny.start(tiny.encode([[5, 2]])), torch.zeros((1, 1, 1), dtype=torch.long)
    assert all_in(["model"])
    tiny.step(state, token)
    assert all_in(["model"])
    tiny.step(FixedState(tiny.fixed_memory(1, 1, 8, 2), 1, 8, 2), token)
    assert all_in([])
    forced.force(tiny, [[5, 2]], [[6, 7, 2]])
    assert all_in(["forced", "model"])


@contextmanager
def _noted(name: str, inside: list[str]) -> Iterator[None]:
    inside.append(name)
    yield
    inside.remove(name)
