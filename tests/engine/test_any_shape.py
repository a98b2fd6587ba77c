from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from knnmt.engine import forced, transformer
from knnmt.engine.any_shape import any_shape
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


def test_passes_over_text_take_any_shape(tiny: TransformerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder and forced passes, both asked as a GPU would be."""
    seen: list[tuple[str, bool]] = []
    for module, name in ((forced, "force"), (transformer, "encode")):
        monkeypatch.setattr(module, "any_shape", lambda _, name=name: _noted(name))

    class _noted:  # noqa: N801
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            seen.append((self.name, True))

        def __exit__(self, *_: object) -> None:
            seen.append((self.name, False))

    forced.force(tiny, [[5, 2]], [[6, 7, 2]])
    assert seen == [("force", True), ("encode", True), ("encode", False), ("force", False)]
