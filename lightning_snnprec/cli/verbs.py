"""The commands of `snnprec`: what each does, how it is called, and where its code lies."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

OVERRIDES_HELP = """\
overrides (Hydra's, on any key that `--cfg job` shows):
  precision=fp16              another option of a group: model, data, precision, trainer, callbacks, experiment
  trainer.max_epochs=3        another value
  +trainer.max_depth=1        a key that the recipe lacks
flags (Hydra's):
  --cfg job                   print the recipe instead of running it
  --config-dir DIR            also find recipes in DIR
  --config-name NAME          another main recipe than fit
  --info, --hydra-help        more on where values come from"""


@dataclass(frozen=True)
class Verb:
    """One command.

    Args:
        name: as typed.
        summary: one line.
        usage: what follows the name.
        details: what it does and prints, for `--help`.
        examples: command lines with what they do.
        module: where `run(arguments) -> int` is.
        takes_overrides: whether Hydra's overrides and flags are accepted.
    """

    name: str
    summary: str
    usage: str
    details: str
    examples: tuple[tuple[str, str], ...]
    module: str
    takes_overrides: bool = True

    def help(self) -> str:
        """The text of `snnprec NAME --help`."""
        width = max(len(line) for line, _ in self.examples)
        examples = "\n".join(f"  {line:<{width}}   {what}" for line, what in self.examples)
        parts = [f"usage: snnprec {self.name} {self.usage}".rstrip(), self.details, f"examples:\n{examples}"]
        return "\n\n".join(parts + ([OVERRIDES_HELP] if self.takes_overrides else []))


_CHECKPOINT = (
    "CHECKPOINT is a file, or a run's folder (its last checkpoint). The recipe is the one stored with the run; "
    "overrides\nchange it. Without a stored recipe beside the checkpoint, the main recipe is used."
)

_VERBS = (
    Verb(
        name="fit",
        summary="train, from a recipe",
        usage="[--resume [PATH]] [overrides]",
        details=(
            "Trains, and then prints accuracy, firing rates, where the run's folder is, and how to resume it.\n\n"
            "  --resume        continue the newest run below runs_dir (runs/) from its last checkpoint\n"
            "  --resume PATH   continue from a checkpoint or a run's folder, with the recipe stored there\n"
            "  --multirun      train once for each combination of comma-separated values; one device"
        ),
        examples=(
            ("snnprec fit", "the default recipe: digits, BF16"),
            ("snnprec fit precision=fp32 trainer.max_epochs=3", "FP32, three epochs"),
            ("snnprec fit experiment=digits_latency", "a whole experiment"),
            ("snnprec fit --multirun seed=0,1,2 precision=fp32,bf16", "six runs"),
            ("snnprec fit --resume trainer.max_epochs=40", "go on with the newest run, up to epoch 40"),
        ),
        module="lightning_snnprec.cli.fit",
    ),
    Verb(
        name="validate",
        summary="evaluate a checkpoint on the validation set",
        usage="CHECKPOINT [overrides]",
        details=f"Prints the metrics of a checkpoint on the validation set. {_CHECKPOINT}",
        examples=(
            ("snnprec validate runs/2026-01-31_12-00-00_000000", "its last checkpoint"),
            ("snnprec validate model.ckpt precision=fp32", "in another precision"),
        ),
        module="lightning_snnprec.cli.evaluate",
    ),
    Verb(
        name="test",
        summary="evaluate a checkpoint on the test set",
        usage="CHECKPOINT [overrides]",
        details=f"Prints the metrics of a checkpoint on the test set. {_CHECKPOINT}",
        examples=(
            ("snnprec test runs/2026-01-31_12-00-00_000000", "its last checkpoint"),
            ("snnprec test model.ckpt precision=fp32", "in another precision"),
        ),
        module="lightning_snnprec.cli.evaluate",
    ),
    Verb(
        name="predict",
        summary="write a checkpoint's predictions to a file",
        usage="CHECKPOINT [input=FILE.npz] [output=FILE.npz] [overrides]",
        details=(
            "Writes probabilities `prob` [N, classes] and classes `pred` [N] to an .npz file: predictions.npz in the "
            "run's\nfolder, or output=. Predicts the test set, or `x` of input=, an .npz file of intensities in 0..1.\n"
            f"{_CHECKPOINT}"
        ),
        examples=(
            ("snnprec predict runs/2026-01-31_12-00-00_000000", "the test set"),
            ("snnprec predict model.ckpt input=mine.npz output=out.npz", "one's own samples, x of [N, 64] for digits"),
        ),
        module="lightning_snnprec.cli.predict",
    ),
    Verb(
        name="plan",
        summary="show what a precision does to the model, without training",
        usage="[--contract] [device=NAME] [overrides]",
        details=(
            "Prints the device's facts, each module's decision with its reason, the plan's digest, and what would be "
            "refused.\nNeeds no GPU: device= plans for a device that is not here (h100, h200, b200, ...).\n\n"
            "  --contract   print what each converted layer and each neuron promises of its numbers, and the dtype\n"
            "               of the operations that suffer most in 16 bits"
        ),
        examples=(
            ("snnprec plan", "the default recipe on this machine"),
            ("snnprec plan precision=fp8 device=h200", "FP8 on an H200"),
            ("snnprec plan precision=fp8_block 'precision.exclude=[*head*]'", "with layers left out"),
        ),
        module="lightning_snnprec.cli.plan",
    ),
    Verb(
        name="doctor",
        summary="say what this machine can run, and what is missing",
        usage="",
        details=(
            "Prints versions and devices, every precision recipe with yes or the reasons why not, and the commands "
            "that\ninstall what is missing."
        ),
        examples=(("snnprec doctor", "this machine"),),
        module="lightning_snnprec.cli.doctor",
        takes_overrides=False,
    ),
    Verb(
        name="bench",
        summary="measure, after checking that the results are right",
        usage="BENCHMARK [options]",
        details="Runs one of the project's benchmarks; `snnprec bench` lists them.",
        examples=(("snnprec bench overhead", "what the plugin costs beside Lightning's own MixedPrecision"),),
        module="lightning_snnprec.cli.bench",
        takes_overrides=False,
    ),
)
VERBS = {verb.name: verb for verb in _VERBS}


def overview() -> str:
    """The text of `snnprec --help`."""
    width = max(map(len, VERBS))
    lines = "\n".join(f"  {verb.name:<{width}}   {verb.summary}" for verb in _VERBS)
    return (
        "usage: snnprec COMMAND [arguments]\n\n"
        "Low-precision training of spiking neural networks with Lightning.\n\n"
        f"commands:\n{lines}\n\n"
        "Start with `snnprec fit`. `snnprec COMMAND --help` has the arguments and examples of a command,\n"
        "`snnprec --version` the version."
    )


def unknown_verb(name: str) -> str:
    """What to say to a command that does not exist."""
    near = difflib.get_close_matches(name, VERBS, n=1)
    hint = f"did you mean 'snnprec {near[0]}'?" if near else f"the commands are {', '.join(VERBS)}"
    if "=" in name:
        hint = f"overrides follow a command, as in 'snnprec fit {name}'"
    return f"snnprec has no command {name!r}; {hint}"
