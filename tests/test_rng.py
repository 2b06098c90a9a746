import copy
import pickle

import torch

from lightning_snnprec.rng import SavedGenerator


def test_state_copies_and_pickles_go_on_alike() -> None:
    first = SavedGenerator(7)
    torch.rand(5, generator=first.generator)
    other = SavedGenerator(1)
    other.load_state(first.state())
    twins = [other, copy.deepcopy(first), pickle.loads(pickle.dumps(first))]
    expected = torch.rand(9, generator=first.generator)
    for twin in twins:
        assert torch.equal(torch.rand(9, generator=twin.generator), expected)


def test_the_same_kind_of_device_keeps_the_state() -> None:
    generator = SavedGenerator(7)
    torch.rand(5, generator=generator.generator)
    before = generator.state()
    generator.to("cpu")
    assert torch.equal(generator.state(), before)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    torch.rand(5, generator=SavedGenerator(7).generator)
    assert torch.equal(torch.get_rng_state(), before)
