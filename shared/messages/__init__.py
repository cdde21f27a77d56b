"""The messages between services. Each carries its sender's epoch; receivers refuse older epochs.

Services of two consecutive releases work together during an upgrade. For released messages this means:

- A field may be added, with a default that means what was true before. Readers ignore unknown fields, so
  nothing may rely on an older reader having understood one.
- A field is never removed, renamed or given another type, and its default never changes: defaults are omitted on
  the wire. To retire a field, stop reading it in one release and sending it in the next.
- An `array_like` struct gets new fields at its end only; a struct that is a map stays one.
- A new message has a tag of its own. An older reader refuses and counts it; the sender must cope without an answer.
- A new enum value, or a new type in a list, makes an older reader refuse the whole message, so it must be readable one
  release before it is sent. Object kinds in the watcher's stream are an exception: unknown kinds are skipped, and kinds
  that the watcher does not list are not waited for.

Numbers have types with a range (`Count`, `Integer`, `Seconds`, `SignedSeconds` of `shared/model/base.py`), so that a
message with an absurd number does not decode.

The rules hold for what messages and Redis carry, too: pods, nodes, other objects, loads, the ledger. Redis also has a
schema number (`shared/store/schema.py`) for changes that cannot be made this way. `tests/messages` compares the
structs with a record of the last release, written by `python -m tests.messages.record`.
"""
