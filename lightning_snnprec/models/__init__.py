"""Spiking networks."""

from lightning_snnprec.models.dropout import TimeSharedDropout
from lightning_snnprec.models.fc_snn import FCSNN
from lightning_snnprec.models.neuron import NEURONS, NeuronFactory, NeuronOptions, neuron_factory

__all__ = ["FCSNN", "NEURONS", "NeuronFactory", "NeuronOptions", "TimeSharedDropout", "neuron_factory"]
