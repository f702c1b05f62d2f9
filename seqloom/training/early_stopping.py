"""Early stopping: end the training when the validation score no longer improves."""

from __future__ import annotations


class EarlyStopping:
    """Stop after `patience` validations in a row without a better score (Prechelt 1998); None: never."""

    def __init__(self, patience: int | None) -> None:
        self.patience = patience
        self.worse = 0  # validations since the best one

    def update(self, better: bool) -> None:
        self.worse = 0 if better else self.worse + 1

    @property
    def stop(self) -> bool:
        return self.patience is not None and self.worse >= self.patience
