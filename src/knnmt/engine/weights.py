"""Named weights of a checkpoint, taken one by one, with clear errors for missing and unexpected weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from knnmt.engine.layers import AnyProjection, Norm, projection
from knnmt.engine.product import Int8Projection
from knnmt.errors import CheckpointError


class Weights:
    """Returns the tensors of a checkpoint on the device and in the type of the computation.

    dtype: int8 applies to the projections only; all other weights are then float32
    """

    def __init__(self, tensors: Mapping[str, Tensor], place: str, device: torch.device, dtype: torch.dtype) -> None:
        self._tensors = tensors
        self._place = place
        self._device = device
        self.dtype = dtype
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, *names: str, shape: tuple[int | None, ...]) -> Tensor:
        """The tensor under the first of `names` that the checkpoint has. It must have this shape; None is any size."""
        for name in names:
            if name in self._tensors:
                self._taken.add(name)
                self._require_fit(name, shape)
                dtype = torch.float32 if self.dtype == torch.int8 else self.dtype
                taken = self._tensors[name].to(device=self._device, dtype=dtype).contiguous()
                self._require_numbers(name, taken)
                return taken
        raise CheckpointError(
            f"{self._place}: expected a tensor named {' or '.join(names)}, found {len(self._tensors)} others. "
            "The weights do not belong to this config.json, or the file is incomplete: fetch the checkpoint again."
        )

    def _require_fit(self, name: str, shape: tuple[int | None, ...]) -> None:
        """Refuse a tensor of another shape: compiled code would read beyond its end."""
        found = self._tensors[name]
        fits = len(shape) == found.dim() and all(a in (None, b) for a, b in zip(shape, found.shape, strict=True))
        fits = fits and found.numel() > 0
        if not fits or not found.is_floating_point() or found.is_sparse:
            expected = str(shape).replace("None", "any number")
            raise CheckpointError(
                f"{self._place}: expected {name} of floating-point numbers {expected}, as d_model and other sizes of "
                f"config.json say, found {found.dtype} {tuple(found.shape)}. Check that config.json and the weights "
                "are from the same checkpoint."
            )

    def _require_numbers(self, name: str, taken: Tensor) -> None:
        """Refuse weights that contain NaN: the model could not translate with them."""
        if taken.amax().isnan():
            raise CheckpointError(
                f"{self._place}: {name} has entries that are not numbers (NaN): the training went wrong, or "
                "the file is damaged. Fetch the checkpoint again, or use another."
            )

    def projection(
        self, *names: str, inputs: int, outputs: int | None, fine: bool = False, of_steps: bool = False
    ) -> AnyProjection:
        """One projection, or several with the same input side by side.

        outputs: the number of outputs of each; None for any number
        fine, of_steps: as in `Int8Projection` and `float_product`
        """
        weight = torch.cat([self.take(f"{name}.weight", shape=(outputs, inputs)) for name in names])
        with_bias = f"{names[0]}.bias" in self
        outputs = len(weight) // len(names)
        bias = torch.cat([self.take(f"{name}.bias", shape=(outputs,)) for name in names]) if with_bias else None
        return self.as_projection(weight, bias, fine, of_steps)

    def rows_of(self, name: str) -> int:
        """The number of rows of a matrix, if only the weights show it."""
        found = self._tensors.get(name)
        return 0 if found is None or not found.dim() else len(found)

    def as_projection(
        self, weight: Tensor, bias: Tensor | None, fine: bool = False, of_steps: bool = False
    ) -> AnyProjection:
        """weight: (out, in), as `take` returns it"""
        return Int8Projection(weight, bias, fine) if self.dtype == torch.int8 else projection(weight, bias, of_steps)

    def norm(self, name: str, dim: int, epsilon: float) -> Norm:
        return Norm(self.take(f"{name}.weight", shape=(dim,)), self.take(f"{name}.bias", shape=(dim,)), epsilon)

    def require_all_taken(self, may_stay: set[str]) -> None:
        """Refuse a checkpoint with weights that nothing asked for: it does not match its config."""
        left = sorted(set(self._tensors) - self._taken - may_stay)
        if left:
            raise CheckpointError(
                f"{self._place}: {len(left)} tensors do not belong to the model that config.json describes, for "
                f"example {left[0]!r}. Check that config.json and the weights are from the same checkpoint."
            )
