"""Files of trained weights: what is wrong with one is said with the file and a remedy."""

import numpy as np
import pytest

import networks
from harness.data import arrays, trained_weights
from harness.errors import WrongUse

NETWORK = networks.get("tiny_resnet")


def state():
    drawn = arrays.draw_weights(NETWORK, 1)
    return {**drawn, **{name: np.ones(shape, np.float32) for name, shape in NETWORK.state_shapes.items()
                        if name not in drawn}}


def test_a_whole_file_is_read_compressed_or_not(tmp_path):
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "weights.npz", **state())
        found, digest = trained_weights.read(tmp_path / "weights.npz", NETWORK)
        assert found.keys() == state().keys() and len(digest) == 64
        assert all(np.array_equal(found[name], array) for name, array in state().items())


@pytest.mark.parametrize(("change", "says"), [
    ({"batch_norm1.mean": None}, "holds no array batch_norm1.mean, one of 1 that tiny_resnet needs"),
    ({"dense1.scale": np.ones(3, np.float32)}, "holds an array dense1.scale, which tiny_resnet lacks; leave it out"),
    ({"dense1.bias": np.ones(9, np.float32)}, "dense1.bias has the shape (9,), tiny_resnet needs (5,)"),
    ({"dense1.bias": np.ones(5)}, "dense1.bias is float64; save it as float32"),
    ({"dense1.bias": np.full(5, np.nan, np.float32)}, "dense1.bias has numbers that are not finite"),
    ({"batch_norm1.variance": np.full(NETWORK.state_shapes["batch_norm1.variance"], -1, np.float32)},
     "batch_norm1.variance has negative numbers; a variance has none"),
    ({"dense1.bias": np.array(["a"] * 5, object)}, "is no .npz of plain arrays"),
])
def test_what_is_wrong_with_an_array_is_said(tmp_path, change, says):
    whole = {**state(), **change}
    np.savez(tmp_path / "weights.npz", **{name: array for name, array in whole.items() if array is not None})
    with pytest.raises(WrongUse) as refused:
        trained_weights.read(tmp_path / "weights.npz", NETWORK)
    assert str(refused.value).startswith(f"{tmp_path}/weights.npz: ") and says in str(refused.value)


def test_what_is_no_file_of_this_network_is_refused(tmp_path):
    file = tmp_path / "weights.npz"
    for content, says in ((None, "no such file"), (b"PK\3\4 cut off", "is no .npz of plain arrays"),
                          (bytes(10**6), "has 1,000,000 bytes, the weights of tiny_resnet take less")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(WrongUse, match=says):
            trained_weights.read(file, NETWORK)
    # A small file that unpacks to much more is not unpacked.
    np.savez_compressed(file, **{"dense1.bias": np.zeros(10**6, np.float32)})
    with pytest.raises(WrongUse, match=r"unpacks to 4,000,128 bytes"):
        trained_weights.read(file, NETWORK)


def test_a_language_model_is_refused_because_its_proof_has_other_weights(tmp_path):
    with pytest.raises(WrongUse, match="gpt2_small: its proof takes a shorter network"):
        trained_weights.read(tmp_path / "weights.npz", networks.get("gpt2_small"))
