import json
import shutil

import pytest
import torch
import yaml
from small_run import outcome, run_small, small_dataset, small_recipe

from gssc.files import DamagedFileError, load_tensors, save_tensors
from gssc.pretrained.find import find_start, pretrained_folder
from gssc.pretrained.publish import publish
from gssc.train import build_model, load_run
from gssc.train.build import about_data
from gssc.train.loaded import take_weights


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two seeds, trained; ``published`` is a model made of them."""
    folder = tmp_path_factory.mktemp("start")
    for seed in (0, 1):
        run_small(folder, f"first/seed-{seed}", "train.epochs=2", seed=seed)
    publish(folder / "first", folder / "published")
    return folder


def parameters(folder):
    return {name: tensor.detach() for name, tensor in load_run(folder).model.named_parameters()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_run_begins_where_another_ended(root):
    still = ("train.epochs=1", "optim.lr=0.0")
    folder, _ = run_small(root, "second", f"train.start={root / 'first/seed-0'}", *still)
    assert_same(parameters(folder), parameters(root / "first/seed-0"))
    away, _ = run_small(root, "anew", *still)
    trained, fresh = parameters(folder), parameters(away)
    assert sum(not torch.equal(fresh[name], tensor) for name, tensor in trained.items()) > len(trained) / 2


def test_statistics_of_norms_are_taken_too(root):
    recipe, dataset = small_recipe(), small_dataset(root)
    model = build_model(recipe, about_data(recipe, dataset))
    assert take_weights(model, root / "first/seed-1", 0).endswith("first/seed-1")
    assert_same(model.state_dict(), load_run(root / "first/seed-1").model.state_dict())


@pytest.mark.parametrize("seed", [0, 1])
def test_of_several_seeds_each_continues_its_own(root, seed):
    folder, _ = run_small(
        root, f"third/seed-{seed}", f"train.start={root / 'first'}", "train.epochs=1", "optim.lr=0.0", seed=seed
    )
    assert_same(parameters(folder), parameters(root / f"first/seed-{seed}"))


def test_published_models_are_beginnings(root):
    model = load_run(root / "first/seed-0").model
    take_weights(model, root / "published", 5)
    assert_same(model.state_dict(), load_run(root / "published").model.state_dict())


def test_beginnings_are_found_by_name_and_published_ones_are_checked(root, tmp_path):
    assert find_start("zinc-12k") == pretrained_folder() / "zinc-12k"
    assert find_start(str(root / "first")) == root / "first"
    shutil.copytree(root / "published", tmp_path / "damaged")
    with (tmp_path / "damaged/model.safetensors").open("ab") as file:
        file.write(b"x")
    start = f"train.start={tmp_path / 'damaged'}"
    with pytest.raises(ValueError, match=r"^train\.start: .*model\.safetensors"):
        run_small(root, "from damaged", start, find_start=find_start)
    with pytest.raises(ValueError, match=r"^train\.start: model: expected .*zinc-12k"):
        run_small(root, "from nothing", "train.start=zinc-12", find_start=find_start)


def test_what_has_another_shape_begins_as_the_seed_makes_it(root):
    recipe = small_recipe()
    about = about_data(recipe, small_dataset(root))
    about["task"]["outputs"] = 3
    torch.manual_seed(3)
    model = build_model(recipe, about)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trained = load_run(root / "first/seed-0").model.state_dict()
    said = take_weights(model, root / "first/seed-0", 0)
    others = {name for name, tensor in before.items() if trained[name].shape != tensor.shape}
    count = sum(before[name].numel() for name in others)
    assert len(others) == 2  # weight and bias of the last Linear
    assert f"but for {count} that begin anew ({', '.join(n for n in before if n in others)})" in said
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name] if name in others else trained[name]), name


def test_a_resumed_run_does_not_need_its_beginning_any_more(root, tmp_path):
    shutil.copytree(root / "first/seed-0", tmp_path / "here")
    start = f"train.start={tmp_path / 'here'}"
    whole, _ = run_small(root, "whole", start, "train.epochs=2")
    cut, summary = run_small(root, "cut", start, "train.epochs=2", deadline=0.0)
    assert summary is None
    assert (cut / "checkpoints/last.safetensors").exists()
    shutil.rmtree(tmp_path / "here")
    run_small(root, "cut", start, "train.epochs=2", resume=True)
    assert outcome(cut)["model.safetensors"] == outcome(whole)["model.safetensors"]
    with pytest.raises(ValueError, match=r"train\.start"):
        run_small(root, "late", start, "train.epochs=2")
    assert not (root / "late/config.yaml").exists()


def test_beginnings_that_do_not_exist_or_do_not_fit(root):
    model = load_run(root / "first/seed-0").model
    for bad, message in (
        (root / "no/such", r"^run: expected the folder of a run"),
        (root / "first", r"^run: expected a folder with seed-7, got .*first with seed-0, seed-1"),
    ):
        with pytest.raises(ValueError, match=message):
            take_weights(model, bad, 7)
    with pytest.raises(ValueError, match=r"^train\.start: run: expected the folder of a run"):
        run_small(root, "from nowhere", "train.start=no/such")
    recipe = small_recipe("model.channels=6", "model.phi_channels=6")
    about = about_data(recipe, small_dataset(root))
    about["task"]["outputs"] = 3
    with pytest.raises(ValueError, match=r"^run: expected a model that shares weights with this one"):
        take_weights(build_model(recipe, about), root / "first/seed-0", 0)


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("dataset.json", ("task", "scale"), 10.0),
        ("dataset.json", ("task", "metric"), "mae"),
        ("dataset.json", ("task", "level"), "graph"),
        ("dataset.json", ("name",), "cycles-4"),
        ("dataset.json", ("standardize",), {"x": [[0.0], [2.0]]}),
        ("config.yaml", ("spectrum", "k"), 5),
        ("config.yaml", ("model", "layers"), 500),
        ("config.yaml", ("model", "normalize"), False),
        ("config.yaml", ("train", "precision"), "bf16"),
        ("summary.json", ("metric",), "mae"),
    ],
)
def test_files_beside_the_weights_must_say_what_these_were_saved_with(root, tmp_path, file, path, value):
    folder = tmp_path / "run"
    for kept in ("model.safetensors", "nothing"):  # without them, those of the checkpoint
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(root / "first/seed-0", folder)
        if kept == "nothing":
            (folder / "model.safetensors").unlink()
        values = inside = yaml.safe_load((folder / file).read_text())
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        (folder / file).write_text(json.dumps(values))  # which is YAML as well
        if (file, kept) != ("summary.json", "nothing"):
            with pytest.raises(DamagedFileError, match=rf"{file}: expected .*{path[-1]}"):
                load_run(folder)


def test_what_does_not_touch_predictions_may_be_changed(root, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(root / "first/seed-0", folder)
    values = yaml.safe_load((folder / "config.yaml").read_text())
    values["name"], values["data"]["file"], values["train"]["checkpoint_every"] = "mine", "moved.pt", 7
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    assert load_run(folder).recipe.name == "mine"


def test_a_model_is_compared_with_its_weights_before_it_is_built(root, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(root / "first/seed-0", folder)
    tensors, about = load_tensors(folder / "model.safetensors")
    model = yaml.safe_load((folder / "config.yaml").read_text())

    def claim(section: str, key: str, value: object) -> None:
        """In both places, so that they agree."""
        changed = json.loads(json.dumps(about))
        changed[section][key] = changed[section][key] | value if isinstance(value, dict) else value
        save_tensors(folder / "model.safetensors", tensors, changed)
        (folder / "config.yaml").write_text(json.dumps(model | changed["recipe"]))
        (folder / "dataset.json").write_text(json.dumps(changed["dataset"]))

    for section, key, value, words in [
        ("recipe", "model", {"layers": 900}, "model.layers: expected 1, as there are weights of, got 900"),
        ("recipe", "model", {"channels": 2_000}, "of shape "),
        ("recipe", "spectrum", {"rwse": 10_000}, "rwse_channels"),
        ("dataset", "node_features", [5] * 90_000, "0 columns of node_features"),
        ("dataset", "node_features", 90_000, "node_encoder"),
    ]:
        claim(section, key, value)
        with pytest.raises(ValueError, match=words):
            load_run(folder)
