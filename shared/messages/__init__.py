"""The messages between services. Each carries its sender's epoch; receivers refuse older epochs.

Services of two consecutive releases work together during an upgrade: CONTRIBUTING.md has the rules for changes of
messages. Numbers have types with a range (`Count`, `Integer`, `Seconds`, `SignedSeconds` of `shared/model/base.py`), so
that a message with an absurd number does not decode.
"""
