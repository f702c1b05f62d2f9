"""Freezing parts of a model while the rest is trained."""

from __future__ import annotations

from torch import nn

from seqloom.errors import SeqloomError, known


def freeze(model: nn.Module, names: str) -> list[str]:
    """Exclude the parameters under `names` ("encoder,source", or a single one by its full name) from training.

    They get no gradient, so neither the optimizer nor weight decay changes them. Returns their names. A shared matrix,
    as of a tied output, is frozen under all its names.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    parts = {".".join(path[: i + 1]) for path in (name.split(".") for name in parameters) for i in range(len(path))}
    chosen = [known(name.strip(), parts, "part of the model to freeze") for name in names.split(",")]
    frozen = [name for name in parameters if any(f"{name}.".startswith(f"{part}.") for part in chosen)]
    for name in frozen:
        parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise SeqloomError(f"freeze {names!r} leaves nothing to train; name fewer parts")
    return frozen
