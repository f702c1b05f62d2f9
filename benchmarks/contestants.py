"""Ours and the peers behind one face: `ready` (not timed) gives each what it wants of a batch; `step` trains on it;
`decode` writes exactly `STEPS` tokens a sentence."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from models import DIM, DROPOUT, HEADS, HIDDEN, LAYERS, LONGEST, STATE, PlainLstm, PlainTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batch import Batch
from seqloom.data.tokens import BOS, EOS, PAD
from seqloom.decoding.search import Search, decode
from seqloom.models.seq2seq import Seq2Seq
from seqloom.training.objective import TeacherForcing
from seqloom.training.optimise import apply, optimiser
from seqloom.training.settings import Training

STEPS = 15
NEVER = -1e9  # bias of <pad>, <bos> and <eos> when decoding: nobody stops early
SETTINGS = Training(rate=3e-4, clip=1.0, max_steps=1)  # for all: AdamW's numbers and the clipping come from here


class Contestant(Protocol):
    name: str
    model: nn.Module

    def ready(self, batch: Batch) -> Any: ...
    def step(self, ready: Any) -> Tensor: ...
    def decode(self, ready: Any, beam: int) -> list[list[int]]: ...
    def silence(self) -> None: ...


class Ours:
    name = "seqloom"

    def __init__(self, config: dict[str, Any], sizes: tuple[int, int], device: torch.device) -> None:
        self.model = Seq2Seq(*sizes, **config).to(device)
        self.device = device
        self.objective = TeacherForcing(self.model)
        self.optimiser = optimiser(self.objective, SETTINGS)

    def ready(self, batch: Batch) -> Batch:
        return batch.to(self.device)

    def step(self, ready: Batch) -> Tensor:
        """As seqloom/training/loop.py does it."""
        loss = self.objective(ready)
        loss.total.backward()
        apply(self.optimiser, self.objective.parameters(), loss.count, SETTINGS.clip)
        self.optimiser.zero_grad(set_to_none=True)
        return loss.total.detach() / loss.count

    def decode(self, ready: Batch, beam: int) -> list[list[int]]:
        found = decode(self.model, ready.source, [STEPS] * len(ready.rows), Search(beam=beam))
        return [list(hypotheses[0].tokens) for hypotheses in found]

    def silence(self) -> None:
        _silence(self.model.output.bias)


class Given(NamedTuple):
    """A batch as plain torch wants it; masks and lengths are None where every source is as long as the widest."""

    source: Tensor  # [B, S]
    tokens: Tensor  # [B, T], <bos> first
    labels: Tensor  # [B·T], PAD where there is none
    real: Tensor | None  # [B, S], True at tokens
    lengths: Tensor | None  # [B], on the host


class Peer:
    """What all peers share: the training step as everybody writes it."""

    def __init__(self, name: str, model: nn.Module, device: torch.device) -> None:
        self.name, self.device, self.model = name, device, model.to(device)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        s = SETTINGS
        self.optimiser = torch.optim.AdamW(
            self.trained, s.rate, (s.momentum, 0.98), eps=1e-9, weight_decay=s.weight_decay, fused=True
        )

    def ready(self, batch: Batch) -> Given:
        source, target = batch.source, batch.target.tokens
        ragged = not source.full
        real = (torch.arange(source.tokens.size(1)) < source.lengths[:, None]).to(self.device) if ragged else None
        tokens, labels = target[:, :-1].contiguous(), target[:, 1:].flatten()
        there = (tensor.to(self.device) for tensor in (source.tokens, tokens, labels))
        return Given(*there, real, source.lengths.cpu() if ragged else None)

    def step(self, ready: Given) -> Tensor:
        loss = F.cross_entropy(self.logits(ready).flatten(0, 1), ready.labels, ignore_index=PAD)
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, SETTINGS.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    def logits(self, ready: Given) -> Tensor:
        raise NotImplementedError


class TorchTransformer(Peer):
    def __init__(self, sizes: tuple[int, int], device: torch.device) -> None:
        super().__init__("torch nn.Transformer", PlainTransformer(*sizes), device)

    def logits(self, ready: Given) -> Tensor:
        return self.model(ready.source, _padded(ready), ready.tokens)

    @torch.inference_mode()
    def decode(self, ready: Given, beam: int) -> list[list[int]]:
        """Greedy. nn.Transformer has no cache: the source is read once, but every step runs the whole prefix."""
        padded = _padded(ready)
        memory = self.model.read(ready.source, padded)
        tokens = torch.full((ready.source.size(0), 1), BOS, device=self.device)
        for _ in range(STEPS):
            states = self.model.write(tokens, memory, padded)
            chosen = self.model.output(states[:, -1]).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, chosen], 1)
        return tokens[:, 1:].tolist()

    def silence(self) -> None:
        _silence(self.model.output.bias)


class TorchLstm(Peer):
    def __init__(self, sizes: tuple[int, int], device: torch.device) -> None:
        super().__init__("torch nn.LSTM", PlainLstm(*sizes), device)

    def logits(self, ready: Given) -> Tensor:
        return self.model(ready.source, ready.lengths, _row(ready.real), ready.tokens)

    @torch.inference_mode()
    def decode(self, ready: Given, beam: int) -> list[list[int]]:
        """Greedy; the state is carried and the keys are projected once."""
        values, state = self.model.read(ready.source, ready.lengths)
        keys, real = self.model.keys(values), _row(ready.real)
        tokens, written = torch.full((ready.source.size(0), 1), BOS, device=self.device), []
        for _ in range(STEPS):
            logits, state = self.model.write(tokens, state, keys, values, real)
            tokens = logits.argmax(-1)
            written.append(tokens)
        return torch.cat(written, 1).tolist()

    def silence(self) -> None:
        _silence(self.model.output.bias)


class HuggingFace(Peer):
    """MarianMTModel, with scaled_dot_product_attention, and its own `generate` with a cache."""

    def __init__(self, sizes: tuple[int, int], device: torch.device) -> None:
        from transformers import MarianMTModel

        model = MarianMTModel(_marian_config(sizes))
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_positions.weight.requires_grad_(False)  # sinusoids: constants, as ours and torch's are
        super().__init__("Hugging Face MarianMTModel", model, device)

    def logits(self, ready: Given) -> Tensor:
        mask = None if ready.real is None else ready.real.long()
        return self.model(ready.source, mask, decoder_input_ids=ready.tokens, use_cache=False).logits

    @torch.inference_mode()
    def decode(self, ready: Given, beam: int) -> list[list[int]]:
        # A mask of ones saves `generate` from looking for padding; the model itself then drops it.
        mask = torch.ones_like(ready.source) if ready.real is None else ready.real.long()
        found = self.model.generate(
            ready.source, attention_mask=mask, max_new_tokens=STEPS, num_beams=beam, do_sample=False, use_cache=True
        )
        return found[:, 1:].tolist()

    def silence(self) -> None:
        _silence(self.model.final_logits_bias[0])


def _marian_config(sizes: tuple[int, int]) -> Any:
    from transformers import MarianConfig

    sides = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": HIDDEN}
    return MarianConfig(
        vocab_size=sizes[0],
        decoder_vocab_size=sizes[1],
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=True,
        d_model=DIM,
        max_position_embeddings=LONGEST,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
        activation_function="relu",
        scale_embedding=True,
        dropout=DROPOUT,
        activation_dropout=DROPOUT,
        attention_dropout=0.0,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )


def _padded(ready: Given) -> Tensor | None:
    return None if ready.real is None else ~ready.real


def _row(real: Tensor | None) -> Tensor | None:
    """[B, S] -> [B, 1, S]: the same for every query."""
    return None if real is None else real[:, None]


def _silence(bias: Tensor) -> None:
    with torch.no_grad():
        bias[[PAD, BOS, EOS]] = NEVER


_STACK = {"kind": "transformer", "dim": DIM, "layers": LAYERS, "heads": HEADS, "hidden": HIDDEN, "dropout": DROPOUT}
OURS: dict[str, dict[str, Any]] = {
    "transformer": {"encoder": _STACK, "decoder": _STACK, "embedding": DIM, "dropout": 0.0, "tie": True},
    "lstm-attention": {
        "encoder": {"kind": "lstm", "dim": STATE // 2},
        "decoder": {"kind": "attentive", "cell": "lstm", "dim": STATE, "score": "general", "query": "current"},
        "embedding": DIM,
        "dropout": DROPOUT,
    },
}
PEERS: dict[str, list[Callable[[tuple[int, int], torch.device], Any]]] = {
    "transformer": [TorchTransformer, HuggingFace],
    "lstm-attention": [TorchLstm],
}


def contestants(model: str, sizes: tuple[int, int], device: torch.device) -> list[Contestant]:
    """Ours first, then its peers; Hugging Face only where it is installed."""
    torch.manual_seed(1)
    there = [peer for peer in PEERS[model] if peer is not HuggingFace or importlib.util.find_spec("transformers")]
    return [Ours(OURS[model], sizes, device), *(peer(sizes, device) for peer in there)]
