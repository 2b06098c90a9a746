"""A training loop without Lightning, the same in all four modes (fp8 as an exact simulation, on any machine).

python examples/custom_loop.py --mode bf16
"""

from __future__ import annotations

import argparse

import torch
from torch.nn.functional import cross_entropy

from lightning_snnprec import PrecisionArtifacts, prepare_model_for_precision
from lightning_snnprec.data import DigitsDataModule
from lightning_snnprec.models import FCSNN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="bf16", choices=("fp32", "bf16", "fp16", "fp8"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    data = DigitsDataModule(time_steps=4, batch_size=64)
    data.prepare_data()
    data.setup("fit")
    model = FCSNN(64, (256, 256), 10, init_gain=2.0)

    fields = {"fp8_engine": "emulated"} if arguments.mode == "fp8" else {}
    artifacts = prepare_model_for_precision(model, arguments.device, {"mode": arguments.mode, **fields})
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)  # after the model is prepared

    for epoch in range(arguments.epochs):
        model.train()
        for batch in data.train_dataloader():
            x, y = (part.to(arguments.device) for part in data.on_after_batch_transfer(batch, 0))
            with artifacts.autocast_context():
                loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            artifacts.backward(loss, optimizer, clip_grad_norm=1.0)
        print(f"epoch {epoch}: loss {loss.item():.3f}, validation accuracy {accuracy(model, artifacts, data):.3f}")

    print(artifacts.plan.summary())
    print(f"skipped steps: {artifacts.skipped_steps}")


@torch.no_grad()
def accuracy(model: FCSNN, artifacts: PrecisionArtifacts, data: DigitsDataModule) -> float:
    model.eval()
    device = next(model.parameters()).device
    right = total = 0
    for batch in data.val_dataloader():
        x, y = (part.to(device) for part in data.on_after_batch_transfer(batch, 0))
        with artifacts.autocast_context():
            right += int((model(x).argmax(1) == y).sum())
        total += len(y)
    return right / total


if __name__ == "__main__":
    main()
