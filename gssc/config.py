"""A recipe: everything that determines a training run, as plain dataclasses read from one flat YAML file.

Five sections, ``data``, ``spectrum``, ``model``, ``optim`` and ``train``; every key can be overridden on the command
line as ``section.key=value``. Unknown keys and values of the wrong type are errors that name the nearest match. Keys
that former versions knew (`RETIRED`) are skipped: in silence where their value changed nothing, else with a line.
The remark behind a key is its meaning, as `describe_keys` lists it.
"""

import dataclasses
import inspect
import json
import re
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from gssc.checks import check_at_least_zero, check_choice, check_positive, check_probability, fail, shorten
from gssc.readers import parse_yaml, read_yaml

Precision = Literal["float32", "tf32", "bf16", "float64"]
Global = Literal[
    "gssc", "gsc", "attention", "performer", "exphormer", "grit", "mamba", "sgformer", "polynormer", "none"
]
Head = Literal["halving", "wide", "linear", "normalized-1", "normalized-2"]
# Numbers with the check that `Section` makes of them.
Count = Annotated[int, check_positive]
Number = Annotated[float, check_at_least_zero]
Whole = Annotated[int, check_at_least_zero]
Probability = Annotated[float, check_probability]
_FURTHER = "evaluated the run in further ways; there is one, that of train.ema and train.batch_stats"
# Keys that recipes and recorded runs may still have: the value that changed nothing, and what any other did.
RETIRED: dict[str, tuple[Any, str]] = {
    "train.accumulate": (1, "added up gradients over so many batches; every batch is a step"),
    "train.recombined": (0, "asked teachers of new graphs too; they are asked of the training graphs"),
    "train.last_batch": ("keep", "left out an epoch's last batch where it is short; it is kept"),
    "train.pad": (False, "padded batches; they are where steps are replayed (train.capture)"),
    "train.compile": (False, "compiled layers; they are not"),
    "train.also": (None, _FURTHER),
    "train.also_every": (5, _FURTHER),
}
# What a file must not ask for: memory is spent on it before anything can go wrong.
MOST = {"spectrum.k": 100_000, "spectrum.rwse": 10_000, "model.layers": 1_000, "train.teachers": 1_000}
MOST |= {f"model.{name}": 65_536 for name in ("channels", "phi_channels", "rwse_channels", "diagonal_channels")}
MOST_OF_ANY = 10**9
_said: set[str] = set()  # once per process, however many recipes are read


class Section:
    """One section of a recipe: its fields are checked as their annotations say, whoever makes it."""

    def __post_init__(self) -> None:
        section = type(self).__name__.removesuffix("Config").lower()
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            for option in (hint, *typing.get_args(hint)) if value is not None else ():
                for check in getattr(option, "__metadata__", ()):
                    check(f"{section}.{name}", value)
            most = MOST.get(f"{section}.{name}", MOST_OF_ANY)
            if type(value) is int and value > most:
                fail(f"{section}.{name}", f"at most {most:,}", shorten(repr(value), 40))


@dataclass(frozen=True)
class DataConfig(Section):
    """Which graphs, and which of their targets."""

    dataset: str  # name of the dataset, see gssc.datasets
    generate: bool = False  # generate instead of download, where the dataset is a random model
    seed: Whole = 0  # seed of generated data and of random splits
    file: str | None = None  # own data: a .pt file of PyG graphs or a .csv file of molecules
    split: Literal["official", "random", "scaffold"] = "official"  # into training, validation and test
    smiles_column: str = "smiles"  # column of a .csv file that holds SMILES
    target_columns: str | None = None  # columns of a .csv file to predict, separated by commas
    skip_invalid: bool = False  # leave out molecules that cannot be read, instead of an error
    task: Literal["regression", "multiclass", "binary"] | None = None  # task of own data; null: inferred
    metric: str | None = None  # metric of own data; null: the usual one of its task
    scale: Literal["auto", "standard", "row", "none"] = "standard"  # of continuous features of own data, see infer.py
    neighbours: Literal["file", "published"] = "file"  # of superpixels: edges as read, or by the rule of published code
    mask: Whole = 0  # which of several splits, where masks of own data have a column for each


@dataclass(frozen=True)
class SpectrumConfig(Section):
    """What is computed once per graph; see LaplacianSpectrum and RandomWalkSE."""

    k: Count = 16  # eigenpairs per graph
    operator: Literal["sym", "combinatorial", "adjacency"] = "combinatorial"  # of which; sym: the normalised Laplacian
    zero_modes: Literal["keep", "drop"] = "drop"  # eigenvectors of eigenvalue 0
    which: Literal["low", "high", "both"] = "low"  # end of a Laplacian's spectrum; both: sym, with zero modes kept
    truncation: Literal["eigenspace", "raw"] = "eigenspace"  # whole eigenspaces, or k pairs whatever the basis
    rwse: Whole = 0  # random-walk steps; 0 for none


@dataclass(frozen=True)
class ModelConfig(Section):
    """The arguments of gssc.GSSC that a recipe sets; inputs and outputs follow from the dataset."""

    layers: Count = 4  # layers, each of a local part, a global part and a feed-forward network
    channels: Count = 64  # features of a node inside the model
    local: Literal["gatedgcn", "gine", "gin", "gcn", "sage", "gat", "pna", "none"] = "gatedgcn"  # message passing
    glob: Global = "gssc"  # global part: gsc is spectral convolution, others are those of gssc.nn.rivals
    phi: Literal["deepset", "elementwise", "polynomial", "transformer", "specformer"] = "deepset"  # encodes eigenvalues
    phi_channels: Count | None = 32  # channels of phi; null: as many as the model
    kernel: Literal["channel", "shared"] = "channel"  # one learned kernel per channel, or one for all
    selective: bool = False  # positions that depend on the features (Eq. 6)
    normalize: bool = True  # with selective: keep magnitudes tame; false is Eq. 6 to the letter
    self_term: bool = True  # the second term of Eq. 4, of a node to itself
    degree_scaling: bool = False  # scale features by a learned function of the degree before the global part
    out_proj: bool = False  # a Linear after the global part
    kernel_channels: Count | None = None  # width over which a shared kernel sums; null: that of the model
    in_proj: bool = True  # the Linears before the global part, of features and of φ
    degree_init: Literal["one", "small"] = "one"  # degree scaling begins as the identity, or with small random factors
    degree: Literal["in", "undirected"] = "in"  # degrees that scale: edges that enter a node, or its neighbours
    heads: Count = 4  # heads of attention
    embedding_init: Literal["normal", "xavier"] = "normal"  # first values of the embeddings of categories
    edge_embedding: bool = False  # one learned vector for all edges, where edges have no features
    rwse_channels: Whole = 28  # channels of the random-walk encoding; 0 for none
    diagonal_channels: Whole = 0  # channels of the invariant spectral node encoding; 0 for none
    smooth: Literal["none", "ends"] = "none"  # ends: embeddings and outputs of nodes are averaged over neighbours
    layer_scale: Number = 1.0  # what of every layer is added to its input; 1: all
    dropout_input: Probability = 0.0  # dropout of node features, before anything else
    lappe_channels: Whole = 0  # channels of LapPE, eigenvectors with random signs as node input; 0 for none
    dropout_local: Probability = 0.0  # dropout after the local part
    dropout_global: Probability = 0.0  # dropout after the global part
    dropout_ffn: Probability = 0.0  # dropout in the feed-forward network
    norm: Literal["batch", "layer", "none"] = "batch"  # normalisation after each part
    pool: Literal["sum", "mean", "max"] = "mean"  # from nodes to a graph
    head: Head = "halving"  # last layers: width halved twice, kept, one Linear, or hidden layers of unit length
    ordered_pairs: bool = False  # for pairs of nodes: (u, v) and (v, u) are different
    jumping_knowledge: bool = False  # the head sees the outputs of all layers
    plain: bool = False  # layers of the local part alone, as published: no feed-forward network, no residual


@dataclass(frozen=True)
class OptimConfig(Section):
    """AdamW with linear warm-up, then cosine to zero."""

    lr: Number = 1e-3  # largest learning rate
    weight_decay: Number = 0.0  # weight decay
    decay: Literal["decoupled", "l2"] = "decoupled"  # of AdamW, or a part of the gradient as in Adam
    clip: Number = 1.0  # largest gradient norm; 0 for none
    warmup_epochs: Whole = 0  # epochs in which the learning rate rises from 0


@dataclass(frozen=True)
class TrainConfig(Section):
    """The loop."""

    epochs: Count = 100  # passes over the training graphs
    batch_size: Count = 32  # graphs per step
    start: str | None = None  # a trained model whose weights it begins with; see gssc.train.loaded
    teachers: Whole = 0  # models trained first, whose mean prediction is what this one learns; see gssc.train.teachers
    mirror: bool = False  # half of the training images left to right, drawn anew in every step (superpixels)
    ema: Probability = 0.0  # decay of averaged weights used for evaluation; 0 for none
    batch_stats: Literal["running", "reestimated"] = "running"  # BatchNorm statistics used for evaluation
    precision: Precision = "float32"  # of all numbers; tf32: float32 with coarser products
    capture: bool = True  # on a GPU: replay whole steps as CUDA graphs
    kernels: Literal["auto", "none"] = "auto"  # on a GPU: whole layers as kernels, for the small graphs that they take
    eval_every: Count = 1  # epochs between evaluations on validation
    select_over: Count = 1  # weights are selected by the median score of so many evaluations, the last of them theirs
    patience: Whole = 0  # epochs without a better validation score after which training ends; 0: it never does
    checkpoint_every: Count = 1  # epochs between checkpoints; short ones are not saved more often than stopping.py says
    checkpoint_minutes: Number = 10.0  # longest time between checkpoints, inside an epoch as well
    tensorboard: bool = True  # write events, where TensorBoard is installed

    @property
    def protocol(self) -> str:
        """What is evaluated: ``running`` (the usual), ``reestimated``, ``ema=DECAY`` or ``ema=DECAY+reestimated``."""
        parts = [f"ema={self.ema!r}"] * bool(self.ema) + ["reestimated"] * (self.batch_stats == "reestimated")
        return "+".join(parts) or "running"


@dataclass(frozen=True)
class Recipe:
    """A complete run."""

    name: str
    data: DataConfig
    spectrum: SpectrumConfig = field(default_factory=SpectrumConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def to_dict(self) -> dict[str, Any]:
        """Name and sections as plain values, complete: what ``config.yaml`` of a run holds."""
        return dataclasses.asdict(self)

    def override(self, overrides: Sequence[str]) -> "Recipe":
        """The recipe with ``section.key=value`` replaced; values are read as YAML."""
        values = self.to_dict()
        for text in overrides:
            path, separator, value = text.partition("=")
            section, dot, key = path.partition(".")
            if not separator or not dot:
                fail("override", "section.key=value", repr(text))
            check_choice("override section", section, SECTIONS)
            if path not in RETIRED:
                check_choice(f"override {section}", key, DEFAULTS[section])
            values[section][key] = parse_yaml(value, f"override {path}", "a value in YAML")
        return parse_recipe(values)


class Key(NamedTuple):
    """One key of recipes, in words."""

    name: str
    values: str
    default: str
    meaning: str


def describe_keys() -> list[Key]:
    """Every key of every section, with the values that it takes, its default and its meaning."""
    keys = []
    for section, cls in SECTIONS.items():
        hints = typing.get_type_hints(cls, include_extras=True)
        meanings = dict(re.findall(r"^    (\w+): .*?  # (.+)$", inspect.getsource(cls), flags=re.MULTILINE))
        for name, default in DEFAULTS[section].items():
            shown = "" if default is dataclasses.MISSING else json.dumps(default).strip('"')
            keys.append(Key(f"{section}.{name}", _values(hints[name]), shown, meanings.get(name, "")))
    return keys


def _values(hint: Any) -> str:
    """What an annotation allows, in words."""
    options = typing.get_args(hint)
    if type(None) in options:
        return f"{_values(options[0])}, or null"
    if checks := getattr(hint, "__metadata__", ()):
        return " ".join([KINDS[hint.__origin__], *(LIMITS.get(check, "") for check in checks)])
    return " | ".join(map(str, options)) or KINDS[hint]


KINDS: dict[Any, str] = {int: "an integer", bool: "true or false", str: "text", float: "a number"}
LIMITS: dict[Any, str] = {check_positive: "from 1", check_at_least_zero: "from 0", check_probability: "in [0, 1)"}
SECTIONS: dict[str, Any] = {part.name: part.type for part in dataclasses.fields(Recipe) if part.name != "name"}
DEFAULTS = {name: {f.name: f.default for f in dataclasses.fields(section)} for name, section in SECTIONS.items()}


def parse_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from nested plain values; missing keys take their defaults, unknown ones are errors."""
    if not isinstance(values, Mapping):
        fail("recipe", "a mapping with the sections " + ", ".join(SECTIONS), type(values).__name__)
    for key in values:
        check_choice("recipe key", key, ("name", *SECTIONS))
    for needed in ("name", "data"):
        if needed not in values:
            fail("recipe", f"a key {needed!r}", sorted(values))
    sections = {name: _parse_section(name, values[name]) for name in SECTIONS if name in values}
    return Recipe(name=str(values["name"]), **sections)


def load_recipe(path: Path) -> Recipe:
    """Read one YAML file."""
    values = read_yaml(path)
    try:
        return parse_recipe(values)
    except ValueError as error:
        raise ValueError(shorten(f"{path}: {error}")) from None


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a run as plain values, with the defaults of keys that its sections lack.

    The run is older than these keys: so the default of a new key must be what was done before there was one. Retired
    keys that changed nothing are left out.
    """
    complete = dict(config)
    for name, defaults in DEFAULTS.items():
        if isinstance(values := config.get(name), Mapping):
            section = {key: default for key, default in defaults.items() if default is not dataclasses.MISSING}
            section |= {key: value for key, value in values.items() if not _changed_nothing(f"{name}.{key}", value)}
            complete[name] = section
    return complete


def _changed_nothing(path: str, value: Any) -> bool:
    """Whether this is a retired key with the value that it had where it was not used."""
    return path in RETIRED and bool(RETIRED[path][0] == value)


def _parse_section(section: str, values: Any) -> Any:
    cls = SECTIONS[section]
    if not isinstance(values, Mapping):
        fail(f"recipe section {section}", "a mapping of keys to values", repr(values))
    hints, parsed = typing.get_type_hints(cls), {}
    ignored: dict[str, list[str]] = {}  # what retired keys ask for in vain
    for key, value in values.items():
        path = f"{section}.{key}"
        if path not in RETIRED:
            check_choice(f"recipe key in {section}", key, hints)
            parsed[key] = _convert(path, value, hints[key])
        elif not _changed_nothing(path, value):
            ignored.setdefault(RETIRED[path][1], []).append(f"{path}={value}")
    for what, settings in ignored.items():
        if what not in _said:
            _said.add(what)
            print(f"{shorten(' '.join(settings))}: retired and ignored, it {what}", file=sys.stderr)
    for name, default in DEFAULTS[section].items():
        if default is dataclasses.MISSING and name not in parsed:
            fail(f"recipe section {section}", f"a key {name!r}", sorted(parsed))
    return cls(**parsed)


def _convert(name: str, value: Any, hint: Any) -> Any:
    """Check a plain value against its annotation; an integer or the text '1e-3' will do for a float."""
    options = typing.get_args(hint)
    if type(None) in options:
        return None if value is None else _convert(name, value, options[0])
    if options:  # of a Literal
        check_choice(name, value, options)
        return value
    if hint is float and not isinstance(value, bool):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            fail(name, "a number", repr(value))
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        fail(name, KINDS[hint], repr(value))
    return value
