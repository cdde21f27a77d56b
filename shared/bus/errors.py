"""Errors between a message's sender and its reader."""

from enum import StrEnum

from shared.errors import FlotillaError, ProtocolError


class Silence(StrEnum):
    NOBODY_LISTENS = "nobody listens"
    """Known at once: wait before retrying."""
    TOO_LATE = "no answer in time"
    NOT_CONNECTED = "not connected"


class NoAnswer(FlotillaError):
    """A request without a reply. It may have been executed, unless nobody listens."""

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
    """Of another pipeline with the same prefix."""
    SENSELESS = "senseless"
    """It decodes, but its values are impossible."""


class Refused(ProtocolError):
    """A message that was not accepted from the bus, or not sent."""

    def __init__(self, refusal: Refusal, problem: str) -> None:
        self.refusal = refusal
        super().__init__(problem)
