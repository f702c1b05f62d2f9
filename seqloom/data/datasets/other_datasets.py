"""Named datasets that are not text, and those that are generated."""

from __future__ import annotations

from typing import Any

from seqloom.data.datasets.dataset import HUB, Dataset, File, Folder

_MNIST = Folder(
    "mnist/",
    None,
    """
    0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7 7840016 t10k-images-idx3-ubyte
    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2 10008 t10k-labels-idx1-ubyte
    ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db 47040016 train-images-idx3-ubyte
    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5 60008 train-labels-idx1-ubyte
    """,
)
_FSDD = Folder(
    "fsdd/",
    None,
    """
    b4013362b046ff96d7c979e40317bc55860d39e6686da3693c0e06dc5befd962 23429120 recordings.tar
    """,
)
_CORA = Folder(
    "graphs/",
    None,
    """
    2f49fd6934c57355b9fafefa172309e5501ee13bb1a32ce9469db291050a88d7 102417 cora.npz
    """,
)
_GLOVE = Folder(
    "glove/",
    None,
    """
    f85c6c117c6ffdda8c67ebaebdb3bb6d34a318b44f0b288ad6883eff06d28e94 17160664 glove.6B.100d.top20k.txt
    """,
)


def _generated(name: str, about: str, citation: str, home: str, **more: Any) -> Dataset:
    facts: dict[str, Any] = {"task": "translate", "sizes": {"train": 10_000, "valid": 1_000, "test": 1_000}}
    facts |= {"reader": name, **more}
    return Dataset(name=name, about=about, licence="Apache-2.0", citation=citation, home=home, **facts)


def _pixels(name: str, about: str) -> Dataset:
    known = "train-images-idx3-ubyte train-labels-idx1-ubyte"
    return Dataset(
        name=name,
        task="classify",
        about=about,
        sizes={"train": 55_000, "valid": 5_000, "test": 10_000},
        licence="CC BY-SA 3.0",
        citation="Le et al. 2015, A Simple Way to Initialize Recurrent Networks of Rectified Linear Units; pictures: "
        "LeCun et al. 1998",
        home="https://arxiv.org/abs/1504.00941",
        reader="pixels",
        files=_MNIST.by_split(train=known, valid=known, test="t10k-images-idx3-ubyte t10k-labels-idx1-ubyte"),
        data={"tokens": "words"},
    )


def _listops(name: str, about: str, **sizes: int) -> Dataset:
    return _generated(
        name,
        about,
        "Nangia and Bowman 2018, ListOps; Tay et al. 2021, Long Range Arena, https://arxiv.org/abs/2011.04006",
        "https://arxiv.org/abs/1804.06028",
        task="classify",
        reader="listops",
        sizes=sizes,
        data={"tokens": "words", "max_length": 2_000},
    )


OTHERS = [
    Dataset(
        name="fsdd",
        task="speech",
        about="spoken digits of six speakers, 8 kHz; recordings 0-4 of each are test",
        sizes={"train": 2_700, "test": 300},
        licence="CC BY-SA 4.0",
        citation="Jackson 2016, Free Spoken Digit Dataset",
        home="https://github.com/Jakobovski/free-spoken-digit-dataset",
        reader="fsdd",
        files=_FSDD.by_split(train="recordings.tar", test="recordings.tar"),
    ),
    Dataset(
        name="mnist",
        task="pictures",
        about="handwritten digits, 28 × 28",
        sizes={"train": 60_000, "test": 10_000},
        licence="CC BY-SA 3.0",
        citation="LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition",
        home="http://yann.lecun.com/exdb/mnist",
        reader="idx",
        files=_MNIST.by_split(
            train="train-images-idx3-ubyte train-labels-idx1-ubyte",
            test="t10k-images-idx3-ubyte t10k-labels-idx1-ubyte",
        ),
    ),
    _pixels("pixels", "mnist as 784 grey values, row after row → the digit; the last 5,000 of train are valid"),
    _pixels("pixels-permuted", "pixels in one other order, always the same, that hides what stands beside what"),
    Dataset(
        name="digits",
        task="pictures",
        about="handwritten digits, 8 × 8; the last 360 are test",
        sizes={"train": 1_437, "test": 360},
        licence="CC BY 4.0",
        citation="Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, UCI",
        home="https://archive.ics.uci.edu/dataset/80",
        reader="digits",
        files=dict.fromkeys(
            ("train", "test"),
            (
                File(
                    "digits/digits.csv.gz",
                    HUB + "scikit-learn/scikit-learn/1.9.1/sklearn/datasets/data/digits.csv.gz",
                    "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
                    57_523,
                ),
            ),
        ),
    ),
    Dataset(
        name="cora",
        task="graph",
        about="papers that cite each other, 7 classes; 2,708 nodes, the public split",
        sizes={"train": 140, "valid": 500, "test": 1_000},
        unit="nodes",
        licence="research use",
        citation="Sen et al. 2008, Collective Classification in Network Data; split: Yang et al. 2016, "
        "https://arxiv.org/abs/1603.08861",
        home="https://github.com/kimiyoung/planetoid",
        reader="planetoid",
        files=_CORA.by_split(train="cora.npz", valid="cora.npz", test="cora.npz"),
    ),
    Dataset(
        name="glove",
        task="vectors",
        about="vectors of the 20,000 most frequent words, 100 numbers each; a, i, s and t are not among them",
        sizes={"all": 20_000},
        licence="PDDL 1.0",
        citation="Pennington et al. 2014, GloVe: Global Vectors for Word Representation, "
        "https://aclanthology.org/D14-1162",
        home="https://nlp.stanford.edu/projects/glove",
        reader="glove",
        files=_GLOVE.by_split(all="glove.6B.100d.top20k.txt"),
    ),
    _generated(
        "dates",
        "dates as people write them, English, German, French and Chinese → ISO; no date is in two splits",
        "ISO 8601-1:2019",
        "https://www.iso.org/standard/70907.html",
        sizes={"train": 20_000, "valid": 1_000, "test": 1_000},
    ),
    _generated(
        "copy", "letters → the same", "Graves et al. 2014, Neural Turing Machines", "https://arxiv.org/abs/1410.5401"
    ),
    _generated(
        "reverse",
        "letters → the same from behind",
        "Grefenstette et al. 2015, Learning to Transduce with Unbounded Memory",
        "https://arxiv.org/abs/1506.02516",
    ),
    _generated(
        "recall",
        "pairs of letter and digit, then a letter → its digit",
        "Ba et al. 2016, Using Fast Weights to Attend to the Recent Past",
        "https://arxiv.org/abs/1610.06258",
    ),
    _generated(
        "adding",
        "numbers, two of them marked → 1/2 + their sum / 4",
        "Hochreiter and Schmidhuber 1997, Long Short-Term Memory, experiment 4",
        "https://doi.org/10.1162/neco.1997.9.8.1735",
        task="regress",
    ),
    _generated(
        "houses",
        "houses by area, age, garden, district and a note → price; the rule is known, the noise too",
        "Rosen 1974, Hedonic Prices and Implicit Markets",
        "https://doi.org/10.1086/260169",
        task="table",
        sizes={"train": 4_000, "valid": 500, "test": 500},
    ),
    _listops(
        "listops",
        "nested lists of digits to be reckoned, 501 to 1,999 tokens → 0 … 9; a minute to generate",
        train=96_000,
        valid=2_000,
        test=2_000,
    ),
    _listops(
        "listops-short",
        "nested lists of digits to be reckoned, 4 to 100 tokens → 0 … 9",
        train=20_000,
        valid=2_000,
        test=2_000,
    ),
    _generated(
        "saw",
        "“saw”, “can” and such: noun or verb by a word 1 to 20 words before; pairs that differ in that alone",
        "Levesque et al. 2012, The Winograd Schema Challenge (pairs); tags: Nivre et al. 2020, Universal Dependencies",
        "https://universaldependencies.org",
        task="tag",
        sizes={"train": 8_000, "valid": 1_000, "test": 1_000},
    ),
]
