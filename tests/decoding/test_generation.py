"""Going on from a prompt: repeatable, the same in any batch, shown only when certain."""

from __future__ import annotations

import pytest
import torch

from seqloom.data.tokenizers.tokenizers import BOS, EOS
from seqloom.data.tokenizers.vocabulary import Codec
from seqloom.decoding.generation import GenerationOptions, StreamedText, TextGenerator
from seqloom.decoding.sampling import sampling_distribution
from seqloom.decoding.search_options import Search
from seqloom.errors import SeqloomError
from seqloom.models.language_model import LanguageModel

CPU = torch.device("cpu")
ALPHABET = "abcdefgh \n"
SAMPLE = Search(sample=True)


def make(tokens="chars", kind="lstm", labels=(), lines=False, room=None) -> TextGenerator:
    codec = Codec.build(tokens, [ALPHABET if tokens != "words" else "the cat sat on a mat"])
    torch.manual_seed(0)
    more = {"heads": 2, "hidden": 16, "dropout": 0.0, "layers": 1} if kind == "transformer" else {}
    encoder = {"kind": kind, "dim": 8, **more}
    model = LanguageModel(codec.size, len(labels), encoder, embedding=8, dropout=0.0).double().eval()
    model.output.linear.weight.data *= 3
    return TextGenerator(model, codec, list(labels), lines, room, CPU)


def test_a_seed_repeats_and_another_does_not():
    one = make()
    first, again, other = (
        "".join(one.stream("ab", Search(sample=True, seed=seed), GenerationOptions(length=40))) for seed in (7, 7, 8)
    )
    assert first == again != other
    assert len(first) == 40
    assert first != "".join(one.stream("ab", SAMPLE, GenerationOptions(length=40), number=1))


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_a_prompt_gets_the_same_in_any_batch(kind):
    one, prompts = make(kind=kind, room=8), ["a", "abcdefghab cdefgh", "", "ba"]
    together = one.answers(prompts, SAMPLE, GenerationOptions(length=25))
    for number, prompt in enumerate(prompts):
        (alone,) = one.answers([prompt], SAMPLE, GenerationOptions(length=25), streams=[(number, 0)])
        assert together[number].text == alone.text
        assert len(together[number].tokens) == 25
    rest = one.answers(prompts[2:], SAMPLE, GenerationOptions(length=25), streams=[(2, 0), (3, 0)])
    assert [answer.text for answer in rest] == [answer.text for answer in together[2:]]
    several = one.answers(
        ["ab"] * 3, SAMPLE, GenerationOptions(length=25), streams=[(0, sample) for sample in range(3)]
    )
    assert [answer.text for answer in several] == [
        "".join(one.stream("ab", SAMPLE, GenerationOptions(length=25), sample)) for sample in range(3)
    ]


def test_greedy_is_the_likeliest_and_temperature_0_too():
    one = make()
    greedy = one.answers(["abc"], Search(), GenerationOptions(length=12))[0]
    cold = one.answers(["abc"], Search(sample=True, temperature=0), GenerationOptions(length=12))[0]
    assert greedy.text == cold.text
    ids, total = one.encode("abc"), 0.0
    for _ in range(12):
        with torch.no_grad():
            logits, _ = one.model.step(torch.tensor([ids]), one.model.start(_nothing()))
        last = logits[0, -1].clone()
        last[:4] = float("-inf")
        ids.append(int(last.argmax()))
        total += float(last.log_softmax(-1).max())
    assert greedy.tokens == tuple(ids[3:])
    assert greedy.log_probability == pytest.approx(total)


def _nothing():
    from seqloom.data.batches.collate import pad

    return pad([[]])


def test_temperature_is_a_power():
    logits = torch.randn(3, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for temperature in (0.5, 1.0, 2.0):
        power = logits.softmax(-1) ** (1 / temperature)
        assert torch.allclose(sampling_distribution(logits, temperature), power / power.sum(-1, keepdim=True))


def test_samples_follow_the_distribution():
    one = make()
    answers = one.answers(["a"] * 4000, SAMPLE, GenerationOptions(length=1))
    drawn = torch.bincount(torch.tensor([answer.tokens[0] for answer in answers]), minlength=one.codec.size) / 4000
    logits, _ = one.model.step(torch.tensor([one.encode("a")]), one.model.start(_nothing()))
    logits[..., :4] = float("-inf")
    assert torch.allclose(drawn.double(), logits[0, -1].softmax(-1), atol=0.03)
    few = one.answers(["a"] * 300, Search(sample=True, top_k=2), GenerationOptions(length=1))
    assert len({answer.tokens for answer in few}) == 2
    assert not drawn[:4].any()


def test_prompts_longer_than_the_room():
    one = make(kind="transformer", room=8)
    text = "".join(one.stream("abc def gh " * 20, SAMPLE, GenerationOptions(length=50)))
    assert len(text) == 50


def test_it_ends_before_a_stop_text_and_holds_back_its_beginning():
    codec = Codec.build("chars", [ALPHABET])
    written = StreamedText(codec, ["abc"], "")
    shown = [written.add(token) for token in codec.encode("xaabab")]
    assert "".join(shown) == "<unk>aab"
    assert written.close() == "ab"
    written = StreamedText(codec, ["abc", "h"], "")
    shown = "".join(written.add(token) for token in codec.encode("dababc"))
    assert (shown, written.stopped) == ("dab", True)


def test_stop_texts_end_streams_and_answers_alike():
    one = make()
    free = "".join(one.stream("", SAMPLE, GenerationOptions(length=60)))
    stop = free[20:23]
    ended = "".join(one.stream("", SAMPLE, GenerationOptions(length=60, stop=(stop,))))
    assert ended == free[: free.index(stop)]
    assert one.answers([""], SAMPLE, GenerationOptions(length=60, stop=(stop,)))[0].text == ended


def test_half_a_character_is_held_back():
    codec = Codec.build("bytes", [])
    written = StreamedText(codec, [], "")
    shown = [written.add(token) for token in codec.encode("a字é")]
    assert shown == ["a", "", "", "字", "", "é"]
    written.add(codec.encode("字")[0])
    assert written.close() == "\ufffd"
    bpe = Codec.build("bpe:300", ["字字 hello hello"] * 9)
    written = StreamedText(bpe, [], "")
    assert "".join(written.add(token) for token in bpe.encode("hello 字é")) + written.close() == "hello 字é"


def test_words_are_joined_with_blanks_and_eos_is_a_line_end():
    one = make("words")
    cat, sat = (one.codec.token_id(word) for word in ("cat", "sat"))
    written = StreamedText(one.codec, [], "the")
    assert "".join(map(written.add, [cat, EOS, sat, cat])) == " cat\nsat cat"
    assert one.encode("the cat\nsat") == [one.codec.token_id("the"), cat, EOS, sat]
    assert one.encode("the cat\n")[-1] == EOS
    assert one.encode("") == [EOS]


def test_lines_begin_with_bos_or_a_label_and_end_with_eos():
    plain, labelled = make(lines=True), make(lines=True, labels=("Dutch", "French"))
    assert plain.encode("ab")[0] == BOS
    assert labelled.encode("", "French") == [labelled.codec.size + 1]
    answers = plain.answers([""] * 50, SAMPLE, GenerationOptions(length=30))
    assert len({len(answer.tokens) for answer in answers}) > 5
    with pytest.raises(SeqloomError, match="writes for a label; choose from: Dutch, French"):
        labelled.encode("")
    with pytest.raises(SeqloomError, match="unknown label 'Frnch'; did you mean 'French'"):
        labelled.encode("", "Frnch")
    with pytest.raises(SeqloomError, match="knows no labels"):
        plain.encode("", "French")


def test_wrong_courses_are_named():
    with pytest.raises(SeqloomError, match="at least 1 token"):
        GenerationOptions(length=0)
    with pytest.raises(SeqloomError, match="one character at least"):
        GenerationOptions(stop=("",))
    with pytest.raises(SeqloomError, match="no beam here"):
        make().answers(["a"], Search(beam=2), GenerationOptions(length=3))
