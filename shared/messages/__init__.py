"""What the services say to each other. Every message carries its sender's epoch; older epochs are refused.

Services of two releases next to each other work together, while one replaces the other. So of what was released:

- A field may be added, with a default, which means what there was before the field. Readers pass over fields that they
  do not know, so nothing may depend on an older reader having understood it.
- A field is never removed, renamed or given another type, and its default never changes: defaults are left out on the
  wire. What is to go is first no longer read, for one release, and then no longer sent.
- A struct that is a list (`array_like`) gets new fields at its end only; one that is a map stays one.
- A new message has a tag of its own. On a subject where it is not expected it is refused and counted, and the next one
  is read; its sender has to bear that nobody answers.
- A new value of an enum, or a new kind of thing in a list, has the whole message refused by an older reader. It is read
  for one release before it is sent. But kinds of objects in the watcher's stream: those that are not known are passed
  over, and those that the watcher does not list are not waited for.

All this goes for what messages and Redis carry as well: pods, nodes, other objects, loads, the ledger. Redis has a
schema number besides (`shared/store/schema.py`), for changes that cannot be made so. `tests/messages` holds the structs
against the last release, of which `python -m tests.messages.record` makes a record.
"""
