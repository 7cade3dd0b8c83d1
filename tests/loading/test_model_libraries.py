"""Models by their names in timm and torchvision.

Neither library is installed where these tests run: modules of the same names stand in for them, with the
functions and signatures of timm/models/_factory.py (1.0) and torchvision/models/_api.py (0.24). They show
that these are called as they should be, not that the libraries' own models export.
"""

import importlib.util
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from analyzer.errors import ModelError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.user_model import load_user_model

TIMM = """
    from torch import nn

    class Net(nn.Module):
        def __init__(self, num_classes, in_chans):
            super().__init__()
            self.stem = nn.Conv2d(in_chans, 4, 3, stride=2)
            self.head = nn.Linear(4, num_classes)
            self.pretrained_cfg = {"input_size": (3, 40, 48)}
        def forward(self, x):
            return self.head(self.stem(x).mean((2, 3)))

    def list_models(filter="", module="", pretrained=False):
        return ["resnet50", "resnet101"]

    def create_model(model_name, pretrained=False, pretrained_cfg=None, checkpoint_path=None, **kwargs):
        assert pretrained is False
        return Net(kwargs.get("num_classes", 10), kwargs.get("in_chans", 3))
"""
TORCHVISION = """
    from torch import nn

    def list_models(module=None, include=None, exclude=None):
        return ["resnet50"]

    def get_model(name, **config):
        assert config.pop("weights") is None
        return nn.Sequential(nn.Conv2d(3, config.get("width", 8), 3))
"""


@pytest.fixture(autouse=True)
def _stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("timm", "torchvision"):
        if importlib.util.find_spec(name) is not None:
            pytest.skip(f"{name} is installed: no module may stand in for it")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "timm.py").write_text(textwrap.dedent(TIMM))
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("from torchvision import models\n")
    (tmp_path / "torchvision" / "models.py").write_text(textwrap.dedent(TORCHVISION))
    yield
    for name in ("timm", "torchvision", "torchvision.models"):
        sys.modules.pop(name, None)


def loaded(text: str) -> Loaded:
    return load(parse_reference(text), use_cache=False)


def input_shape(found: Loaded) -> list[int | None]:
    (image,) = found.graph().inputs
    return list(image.shape or ())


def test_a_name_of_timm_is_built_without_weights_for_its_own_images() -> None:
    found = loaded("timm:resnet50")
    assert found.name == "timm-resnet50"
    assert input_shape(found) == [1, 3, 40, 48]
    # A kernel of 3 x 3, four channels and their bias; ten classes of four channels and their bias.
    assert found.parameters == 3 * 4 * 9 + 4 + 4 * 10 + 10


def test_arguments_reach_the_library_and_change_the_images() -> None:
    found = loaded("timm:resnet50.a1_in1k(num_classes=5, in_chans=1, img_size=64)")
    assert input_shape(found) == [1, 1, 64, 64]
    assert found.parameters == 1 * 4 * 9 + 4 + 4 * 5 + 5


def test_a_name_of_torchvision_is_built_without_weights() -> None:
    user = load_user_model(parse_reference("torchvision:resnet50(width=6)"), weights="meta")
    assert user.model.get_parameter("0.weight").shape == (6, 3, 3, 3)
    assert all(parameter.is_meta for parameter in user.model.parameters())


def test_a_name_that_a_library_lacks_has_a_suggestion() -> None:
    with pytest.raises(ModelError, match="timm has no model resnet5") as caught:
        loaded("timm:resnet5")
    assert "timm:resnet50" in (caught.value.hint or "")


def test_the_name_of_a_function_is_that_function() -> None:
    with pytest.raises(ModelError, match=r"list_models\(\) returns a list"):
        loaded("timm:list_models")


def test_an_argument_by_position_is_refused() -> None:
    with pytest.raises(ModelError, match="takes 0 arguments by position"):
        loaded("timm:resnet50(10)")


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_a_library_that_is_not_installed_says_how_to_install_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ModelError, match=f"{name} is not installed") as caught:
        loaded(f"{name}:resnet50")
    assert caught.value.hint == f"pip install {name}"
