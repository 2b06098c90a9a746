"""GPU kernels, and the plain torch that defines them; the only importer of Triton, at the first launch."""

from lightning_snnprec.kernels.neuron import obstacles, reads, run_sequence
from lightning_snnprec.kernels.policy import membrane
from lightning_snnprec.kernels.problem import Neuron
from lightning_snnprec.kernels.selfcheck import check_policy

__all__ = ["Neuron", "check_policy", "membrane", "obstacles", "reads", "run_sequence"]
