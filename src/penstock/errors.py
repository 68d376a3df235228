"""Defines the expected errors, which are not bugs. The command line prints each expected error as one line.

PenstockError ├── CatalogError the shipped or given catalog data is malformed or incomplete │ └── UnknownName no
accelerator or model has that name ├── UnsupportedPrecision the accelerator has no datapath for the precision asked for
├── CheckpointError a file of a checkpoint cannot be read, or its parts contradict each other │ └── ConfigError
config.json or its quantisation section is malformed │ └── UnknownArchitecture well formed, but of an architecture this
version cannot read exactly ├── UsageError invalid input: a bad flag value, or flags that contradict each other │ └──
DeploymentError settings no engine has: a memory fraction above 1, a version that is not one, ... ├── UnreadableFile a
file that the user named does not exist, is too large, or is not text ├── TraceError a trace cannot be read, or nothing
in it can be used └── MissingExtra the feature needs an optional dependency; the message is the install line

"Does not fit" and "claim refuted" are results, never exceptions.
"""


class PenstockError(Exception):
    """An expected failure. The message says what failed, where, and how to fix it."""


class CatalogError(PenstockError):
    """Catalog data is malformed or incomplete."""


class UnknownName(CatalogError):  # noqa: N818 - the name is the message's first words
    """No accelerator or model in the catalog has that name."""


class UnsupportedPrecision(PenstockError):  # noqa: N818
    """The accelerator has no datapath for that precision."""


class CheckpointError(PenstockError):
    """A checkpoint's files cannot be read or contradict each other."""


class ConfigError(CheckpointError):
    """config.json, or the quantisation section that belongs to it, is malformed."""


class UnknownArchitecture(ConfigError):  # noqa: N818
    """The config is well formed, but this version cannot read the shape of the model exactly."""


class UsageError(PenstockError, ValueError):
    """The user's input is invalid. The command line exits with status 2."""


class DeploymentError(UsageError):
    """No engine accepts these settings."""


class UnreadableFile(PenstockError):  # noqa: N818
    """A file that the user named does not exist, is too large, or is not text."""


class TraceError(PenstockError):
    """A trace cannot be read, or none of its requests can be used."""


class MissingExtra(PenstockError):  # noqa: N818
    """The feature needs an optional dependency that is not installed."""
