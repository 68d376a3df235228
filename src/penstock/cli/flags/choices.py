"""The words of flags, where the commands that do not call the API yet look for them."""

from penstock.api.asked.choices import counted_targets, engine_choice, split_choice

__all__ = ["counted_targets", "engine_choice", "split_choice"]
