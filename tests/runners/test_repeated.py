"""A proof's batches repeat each device's samples until they are full."""

import numpy as np
import pytest

from runners.arrays import save
from runners.protocol import Runner, Task
from runners.session import Session, repeated, scattered


def filled(batch, devices=1, ranks=1, rank=0, samples=2):
    """Batches of numbers; the tens say the device, and the hundreds the batch."""
    drawn = np.array([[[100 * batch + 10 * device + sample for sample in range(samples)]
                       for device in range(devices)] for batch in range(3)])
    task = Task(None, batch, devices=devices, ranks=ranks, rank=rank)
    return repeated(drawn, task).tolist()


def test_even_batches_repeat_in_blocks_and_odd_ones_interleave():
    assert filled(6) == [[0, 0, 0, 1, 1, 1], [100, 101] * 3, [200, 200, 200, 201, 201, 201]]


@pytest.mark.parametrize(("batch", "count"), [(16, 2), (128, 4), (128, 2), (1024, 2)])
def test_from_sixteen_rows_on_odd_batches_have_a_drawn_order(batch, count):
    orders = [scattered(batch, count, seed) for seed in range(40)]
    assert len({tuple(order) for order in orders}) == 40
    rows = np.arange(batch)
    halves = (rows < batch // 2, (rows >= batch // 4) & (rows < batch // 4 * 3), rows % 2 == 0, rows % 4 < 2)
    for order in orders:
        assert np.bincount(order).tolist() == [batch // count] * count
    for half in halves:
        # Of each half the share of sample 0 is far from that of the whole.
        apart = [abs((order[half] == 0).mean() - 1 / count) for order in orders]
        assert batch == 16 or np.median(apart) > 0.3 / np.sqrt(batch * count)
    assert np.array_equal(scattered(14, 2, 5), np.arange(14) % 2)


def test_no_half_of_a_batch_has_the_samples_of_both():
    blocks, interleaved, _ = (np.array(each) % 10 for each in filled(8))
    assert set(blocks[:4]) == {0} and set(blocks[4:]) == {1}
    assert set(interleaved[::2]) == {0} and set(interleaved[1::2]) == {1}


def test_each_device_of_a_controller_has_its_own_samples_in_its_rows():
    assert filled(4, devices=2)[:2] == [[0, 0, 1, 1, 10, 10, 11, 11],
                                        [100, 101, 100, 101, 110, 111, 110, 111]]


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_takes_the_samples_of_its_device(rank):
    first, second, _ = filled(4, devices=2, ranks=2, rank=rank)
    assert first == [10 * rank + sample for sample in (0, 0, 1, 1)]
    assert second == [100 + 10 * rank + sample for sample in (0, 1, 0, 1)]


def test_a_batch_of_as_many_samples_has_each_once():
    assert filled(2)[:2] == [[0, 1], [100, 101]]


def test_samples_keep_their_shape():
    drawn = np.arange(2 * 1 * 2 * 3 * 4).reshape(2, 1, 2, 3, 4)
    found = repeated(drawn, Task(None, 4))
    assert found.shape == (2, 4, 3, 4)
    assert np.array_equal(found[0], drawn[0, 0][[0, 0, 1, 1]])
    assert np.array_equal(found[1], drawn[1, 0][[0, 1, 0, 1]])


@pytest.mark.parametrize("kept", [False, True])
def test_images_are_filled_as_the_runner_keeps_them(tmp_path, kept):
    class Fed(Runner):
        keeps_channels_last = kept

        def feed(self, inputs, targets, residence):
            self.inputs = inputs

    drawn = np.random.default_rng(1).random((2, 1, 2, 3, 4, 5), np.float32)
    save(tmp_path / "samples.npz", {"inputs": drawn, "targets": np.zeros((2, 1, 2), np.int32)})
    session = Session(Fed)
    session.task = Task(None, 6)
    session.runner = Fed(session.task)
    session._feed_repeated(str(tmp_path / "samples.npz"), 0, "host")
    found = session.runner.inputs
    assert np.array_equal(found, repeated(drawn, session.task))
    lie = found.transpose(0, 1, 3, 4, 2) if kept else found
    assert lie.flags.c_contiguous
