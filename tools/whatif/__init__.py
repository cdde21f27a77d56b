"""Answers what-if questions: decides on a state as the pipeline would, and changes nothing."""
