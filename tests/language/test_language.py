"""Which language is chosen, and what becomes of a text in it."""

from __future__ import annotations

import pytest

from seqloom import language
from seqloom.errors import SettingError
from seqloom.language import _, amount, preferred, using


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "en"),
        ({"SEQLOOM_LANG": "zh"}, "zh"),
        ({"SEQLOOM_LANG": "zh-CN"}, "zh"),
        ({"SEQLOOM_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"SEQLOOM_LANG": "", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.GB18030"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
    ],
)
def test_the_environment_chooses(environment, name):
    assert preferred(environment) == name


def test_an_unknown_language_is_a_setting_error():
    with pytest.raises(SettingError, match=r"SEQLOOM_LANG: unknown language 'fr'. Choose from: en, zh"):
        preferred({"SEQLOOM_LANG": "fr"})
    with pytest.raises(SettingError, match="unknown language 'tlh'"), using("tlh"):
        pass


def test_texts_and_amounts():
    with using("en"):
        assert _("Scores") == "Scores"
        assert _("{y} by {x}", x="step", y="loss") == "loss by step"
        assert (amount(1, "pairs"), amount(1234, "pairs"), amount(None, "pairs")) == (
            "1 pair",
            "1,234 pairs",
            "– pairs",
        )
    with using("zh"):
        assert language.tag() == "zh-CN"
        assert _("Scores") == "成绩"
        assert _("{y} by {x}", x="步", y="损失") == "损失，随步变化"
        assert (amount(1, "pairs"), amount(1234, "pairs"), amount(None, "pairs")) == ("1 对", "1,234 对", "– 对")
        assert _("no entry for this {one}", one=1) == "no entry for this 1"
        assert amount(2, "looms") == "2 looms"
    assert language.language() == "en"


def test_values_are_never_read_as_texts():
    with using("zh"):
        assert _("not evaluated: {names}", names="{x} Scores") == "not evaluated: {x} Scores"
