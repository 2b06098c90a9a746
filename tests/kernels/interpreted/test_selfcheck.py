from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_snnprec.kernels import launch, selfcheck
from lightning_snnprec.kernels.policy import membrane

CPU = torch.device("cpu")


@pytest.mark.parametrize("storage", [torch.float32, torch.float16])
def test_right_kernels_pass(storage: torch.dtype) -> None:
    selfcheck.verify(CPU, membrane(storage), torch.float32)


def test_a_wrong_bit_raises_and_names_versions_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    right = launch.forward

    def wrong(*arguments: Any, **options: Any) -> tuple[torch.Tensor, ...]:
        results = right(*arguments, **options)
        results[3].view(torch.uint8).flatten()[17] ^= 1
        return results

    monkeypatch.setattr(launch, "forward", wrong)
    with pytest.raises(RuntimeError, match=r"wrong bits in kept \(T=4, N=2048\).*triton .*TRITON_PTXAS_PATH"):
        selfcheck.verify(CPU, membrane(torch.float16), torch.float32)
