"""What can go wrong between a message and its reader."""

from enum import StrEnum

from shared.errors import FlotillaError, ProtocolError


class Silence(StrEnum):
    NOBODY_LISTENS = "nobody listens"
    """Known at once: wait before asking again."""
    TOO_LATE = "no answer in time"
    NOT_CONNECTED = "not connected"


class NoAnswer(FlotillaError):
    """A request without an answer. Whether it was carried out is unknown, unless nobody listens."""

    def __init__(self, subject: str, silence: Silence) -> None:
        self.subject = subject
        self.silence = silence
        super().__init__(f"{subject}: {silence}")


class Refusal(StrEnum):
    VERSION = "version"
    TYPE = "type"
    UNDECODABLE = "undecodable"
    TOO_LARGE = "too large"
    PIPELINE = "pipeline"
    """Of another one under the same prefix."""
    SENSELESS = "senseless"
    """It can be decoded, and says what cannot be."""


class Refused(ProtocolError):
    """A message that is not taken from the bus, or not given to it."""

    def __init__(self, refusal: Refusal, problem: str) -> None:
        self.refusal = refusal
        super().__init__(problem)
